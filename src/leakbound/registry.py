"""Find datasets, models, channel shapes, attacks and plots by name, importing them only when used.

A built-in is one line here. A package of somebody else's adds one through an entry point of the group
``leakbound.<kind>``; a configuration adds one by ``plugins: {<kind>: {<name>: "module:attribute"}}``.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any

_LONGEST = 80  # characters of a name in a message
_MOST = 40  # names in a message


class UnknownNameError(ValueError):
    """A name that no registry entry answers to; the message lists what is known and the nearest names."""


def nearest(name: str, known: list[str]) -> str:
    """Sentence part that lists ``known`` and, if something is close to ``name``, says so."""
    close = difflib.get_close_matches(name[:_LONGEST], known, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    listed = [one if len(one) <= _LONGEST else f"{one[:_LONGEST]}..." for one in sorted(known)]
    rest = [f"and {len(listed) - _MOST} more"] if len(listed) > _MOST else []
    return f"known: {', '.join([*listed[:_MOST], *rest]) or 'none'}{hint}"


class Registry:
    """Names of one kind of thing, each bound to ``"module:attribute"`` or to an object.

    Args:
        kind: Singular noun for messages, e.g. ``"model"``; entry points live in the group ``leakbound.<kind>``.
        builtin: Name to ``"module:attribute"`` path, imported on first use.
    """

    def __init__(self, kind: str, builtin: Mapping[str, str]) -> None:
        self.kind = kind
        self._entries: dict[str, Any] = dict(builtin)

    def names(self) -> list[str]:
        """All known names, sorted, those of installed outside packages included."""
        return sorted({*self._entries, *_outside(self.kind)})

    def add(self, name: str, target: object) -> None:
        """Bind ``name`` to an object or to a ``"module:attribute"`` path.

        Raises:
            ValueError: If ``name`` is bound to something else already.
        """
        if self._entries.get(name, target) != target:
            raise ValueError(f"{self.kind} {name!r} is registered already; choose another name")
        self._entries[name] = target

    def path(self, name: str) -> str:
        """The ``"module:attribute"`` path behind ``name``, without importing it.

        Raises:
            UnknownNameError: If no entry has this name.
        """
        target = self._target(name)
        return target if isinstance(target, str) else f"{target.__module__}:{target.__qualname__}"

    def get(self, name: str) -> Any:
        """The object behind ``name``, imported if need be.

        Raises:
            UnknownNameError: If no entry has this name.
            ImportError: If the entry's path leads nowhere, or to something that cannot be called.
        """
        target = self._target(name)
        if not isinstance(target, str):
            return target
        module, _, attribute = target.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except (AttributeError, ValueError) as error:
            raise ImportError(f"{self.kind} {name!r} points to {target!r}, which does not exist") from error
        if not callable(found):
            raise ImportError(f"{self.kind} {name!r} points to {target!r}, which is neither a function nor a class")
        return found

    def _target(self, name: str) -> Any:
        """The object or path bound to ``name``."""
        if name in self._entries:
            return self._entries[name]
        outside = _outside(self.kind)
        if name in outside:
            return outside[name]
        raise UnknownNameError(f"unknown {self.kind} {name!r}; {nearest(name, self.names())}")


@cache
def _outside(kind: str) -> dict[str, str]:
    """Entries of installed packages, name to path."""
    return {entry.name: entry.value for entry in entry_points(group=f"leakbound.{kind}")}


DATASETS = Registry(
    "dataset",
    {
        "digits": "leakbound.datasets.digits:read",
        "mnist": "leakbound.datasets.images:read_mnist",
        "fashion_mnist": "leakbound.datasets.images:read_fashion_mnist",
        "cifar10": "leakbound.datasets.images:read_cifar10",
        "svhn": "leakbound.datasets.images:read_svhn",
        "celeba": "leakbound.datasets.images:read_celeba",
        "parquet": "leakbound.datasets.images:read_parquet",
    },
)

MODELS = Registry(
    "model",
    {
        "lenet": "leakbound.models.lenet:LeNet",
        "lenet_sigmoid": "leakbound.models.lenet:SigmoidLeNet",
        "mlp": "leakbound.models.small:MLP",
        "cnn": "leakbound.models.small:CNN",
        "alexnet": "leakbound.models.alexnet:AlexNet",
        "vgg16": "leakbound.models.vgg:VGG16",
        "resnet10": "leakbound.models.resnet:ResNet10",
    },
)

SHAPES = Registry(
    "shape",
    {
        "natural": "leakbound.channels.shapes:Natural",
        "white": "leakbound.channels.shapes:White",
        "personalized": "leakbound.channels.shapes:Personalized",
        "personalized_printed": "leakbound.channels.shapes:PersonalizedPrinted",
        "least_power": "leakbound.channels.shapes:LeastPower",
        "rate_distortion": "leakbound.channels.shapes:RateDistortion",
    },
)

TRAINERS = Registry(
    "trainer",
    {
        "sgd": "leakbound.training.loop:train_stack",
        "parameter_noise": "leakbound.training.loop:train_stack",
        "gradient_compression": "leakbound.training.loop:train_stack",
        "large_batch": "leakbound.training.loop:train_stack",
        "compression": "leakbound.training.loop:train_stack",
        "dpsgd": "leakbound.training.per_sample:train_dpsgd",
        "dppsac": "leakbound.training.per_sample:train_dppsac",
    },
)

ATTACKS = Registry(
    "attack",
    {
        "membership": "leakbound.attacks.membership:attack",
        "model_inversion": "leakbound.attacks.model_inversion:attack",
        "gradient_inversion": "leakbound.attacks.gradient_inversion:attack",
        "gradient_capacity": "leakbound.attacks.gradient_capacity:measure",
    },
)

ILLUSTRATIONS = Registry(
    "illustration",
    {
        "capacity_surface": "leakbound.theory.illustrations.closed_forms:capacity_surface",
        "toy_example": "leakbound.theory.illustrations.closed_forms:toy_example",
        "noisy_images": "leakbound.theory.illustrations.pictures:noisy_images",
        "compression": "leakbound.theory.illustrations.closed_forms:compression",
        "weights": "leakbound.theory.illustrations.closed_forms:weights",
        "shapes": "leakbound.theory.illustrations.costs:shapes",
        "personalized_cost": "leakbound.theory.illustrations.costs:personalized_cost",
        "leakage": "leakbound.theory.illustrations.costs:leakage",
    },
)

PLOTS = Registry(
    "plot",
    {
        "surface": "leakbound.figures.plots.closed_form:surface",
        "densities": "leakbound.figures.plots.closed_form:densities",
        "compression": "leakbound.figures.plots.closed_form:compression",
        "shapes": "leakbound.figures.plots.closed_form:shapes",
        "weights": "leakbound.figures.plots.images:weights",
        "image_grid": "leakbound.figures.plots.images:image_grid",
        "levels": "leakbound.figures.plots.lines:levels",
        "heatmap": "leakbound.figures.plots.heatmaps:heatmap",
        "plane": "leakbound.figures.plots.planes:plane",
        "noise_surface": "leakbound.figures.plots.theory:noise_surface",
        "table": "leakbound.figures.plots.table:table",
        "budgets": "leakbound.figures.plots.federated:budgets",
        "times": "leakbound.figures.plots.times:times",
        "verdicts": "leakbound.figures.plots.verdicts:verdicts",
    },
)

PLOT_OPTIONS = Registry(
    "plot_option",
    {
        "surface": "leakbound.figures.plot_options:NoOptions",
        "densities": "leakbound.figures.plot_options:NoOptions",
        "compression": "leakbound.figures.plot_options:NoOptions",
        "shapes": "leakbound.figures.plot_options:ShapesOptions",
        "weights": "leakbound.figures.plot_options:NoOptions",
        "verdicts": "leakbound.figures.plot_options:NoOptions",
        "image_grid": "leakbound.figures.plot_options:ImageGridOptions",
        "levels": "leakbound.figures.plot_options:LevelsOptions",
        "heatmap": "leakbound.figures.plot_options:HeatmapOptions",
        "plane": "leakbound.figures.plot_options:PlaneOptions",
        "noise_surface": "leakbound.figures.plot_options:NoOptions",
        "times": "leakbound.figures.plot_options:TimesOptions",
        "table": "leakbound.figures.plot_options:TableOptions",
        "budgets": "leakbound.figures.plot_options:BudgetsOptions",
    },
)
"""Plot to the model of its options, loaded without anything that draws; optional: it lets options be checked early."""

CLAIM_TESTS = Registry(
    "claim_test",
    {
        "increasing": "leakbound.claims.claim_tests:increasing",
        "decreasing": "leakbound.claims.claim_tests:decreasing",
        "greater": "leakbound.claims.claim_tests:greater",
        "less": "leakbound.claims.claim_tests:less",
        "steeper": "leakbound.claims.claim_tests:steeper",
        "ordered": "leakbound.claims.claim_tests:ordered",
        "concordant": "leakbound.claims.claim_tests:concordant",
        "discordant": "leakbound.claims.claim_tests:discordant",
        "front": "leakbound.claims.claim_tests:front",
        "equals": "leakbound.claims.claim_tests:equals",
    },
)

CLAIM_OPTIONS = Registry(
    "claim_option",
    {
        "increasing": "leakbound.claims.claim_options:Trend",
        "decreasing": "leakbound.claims.claim_options:Trend",
        "greater": "leakbound.claims.claim_options:Difference",
        "less": "leakbound.claims.claim_options:Difference",
        "steeper": "leakbound.claims.claim_options:Steepness",
        "ordered": "leakbound.claims.claim_options:Order",
        "concordant": "leakbound.claims.claim_options:Association",
        "discordant": "leakbound.claims.claim_options:Association",
        "front": "leakbound.claims.claim_options:Front",
        "equals": "leakbound.claims.claim_options:Identity",
    },
)
"""Claim test to the model of its options; as ``PLOT_OPTIONS``."""
