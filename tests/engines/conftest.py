"""A fake virtual environment around the Python that runs the tests: real ``sys.path``, made-up packages."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass
class Venv:
    root: Path

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"

    @property
    def site(self) -> Path:
        return self.root / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"

    @property
    def env(self) -> dict[str, str]:
        return {"PATH": f"{self.root / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin", "HOME": str(self.root)}

    def install(self, name: str, version: str, package: str | None = None, files: dict[str, str] | None = None) -> Path:
        """A distribution with metadata; with ``package``, also its folder and a RECORD of what is in it."""
        info = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        record = [f"../../../bin/{name},sha256=differs-with-the-folder,1", f"{info.name}/METADATA,sha256=x,1"]
        if package:
            folder = self.site / package
            folder.mkdir()
            for file, text in {"__init__.py": "", "core.py": "a = 1", "ops.so": "b", **(files or {})}.items():
                (folder / file).write_text(text)
                record.append(f"{package}/{file},sha256={hash((file, text)) & 0xFFFF:x},{len(text)}")
        (info / "RECORD").write_text("\n".join(record) + "\n")
        return info

    def script(self, name: str, text: str) -> Path:
        path = self.root / "bin" / name
        path.write_text(text)
        path.chmod(0o755)
        return path


@pytest.fixture
def venv(tmp_path: Path) -> Venv:
    made = Venv(tmp_path / "venv")
    made.site.mkdir(parents=True)
    made.python.parent.mkdir()
    made.python.symlink_to(sys.executable)
    (made.root / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\ninclude-system-site-packages = false\n")
    return made


@pytest.fixture
def vllm_venv(venv: Venv) -> Venv:
    venv.install("vllm", "0.32.0", "vllm")
    venv.install(
        "torch", "2.13.0", "torch", {"version.py": "cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\ngit_version = 'abc'\n"}
    )
    venv.script("vllm", f"#!{venv.python}\nimport sys\n")
    return venv
