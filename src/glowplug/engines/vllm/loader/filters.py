"""Which tensors a rank passes over, by the same rules as vLLM's own loader.

vLLM's rules are vLLM's functions, imported where a version has them: experts of other ranks (``ep_weight_filter``), names that the
model itself calls unused (``is_unused_checkpoint_weight``), and the language model under ``--mm-encoder-only``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


def passes_over(loader: Any, source: Any, names: Collection[str]) -> Callable[[str], bool]:
    """Says of a checkpoint's tensor whether this rank does not need it.

    Args:
        loader: vLLM's ``DefaultModelLoader``, after it has looked at the model.
        source: its ``Source``.
        names: all names of the checkpoint. As in vLLM, a rule that would leave nothing is no rule.
    """
    rules = [rule for rule in (_unused(source), _language_model(loader)) if rule is not None and not all(map(rule, names))]
    experts = _experts(loader)
    if experts is not None:
        rules.append(experts)
    return lambda name: any(rule(name) for rule in rules)


def _experts(loader: Any) -> Callable[[str], bool] | None:
    local = getattr(loader, "local_expert_ids", None)
    if local is None:
        return None
    from vllm.model_executor.model_loader.ep_weight_filter import should_skip_weight  # noqa: PLC0415  0.18 and later

    return lambda name: bool(should_skip_weight(name, local))


def _unused(source: Any) -> Callable[[str], bool] | None:
    rule: Callable[[str], bool] | None = getattr(source, "is_unused_weight", None)
    return rule


def _language_model(loader: Any) -> Callable[[str], bool] | None:
    prefixes = getattr(loader, "_encoder_only_lm_prefixes", None)
    if not prefixes:
        return None
    try:
        from vllm.model_executor.model_loader.weight_utils import _mapped_weight_name  # noqa: PLC0415  0.30 and later
    except ImportError:
        return None  # then the model itself passes over what it has no place for
    mapper = getattr(loader, "_encoder_only_weights_mapper", None)

    def is_language_model(name: str) -> bool:
        mapped = _mapped_weight_name(mapper, name)
        return mapped is not None and mapped.startswith(tuple(prefixes))

    return is_language_model
