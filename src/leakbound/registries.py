"""Built-in datasets, models, mechanisms of defenses, attacks and plots by name, one line each."""

from collections.abc import Mapping

from leakbound.registry import SHAPES, Registry

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
        "parquet_shown": "leakbound.datasets.images:read_shown_parquet",
        "folders": "leakbound.datasets.class_folders:read_folders",
        "table": "leakbound.datasets.tabular:read_table",
        "table_shown": "leakbound.datasets.tabular:read_shown_table",
    },
)

MODELS = Registry(
    "model",
    {
        "lenet": "leakbound.models.small:LeNet",
        "lenet_sigmoid": "leakbound.models.small:SigmoidLeNet",
        "mlp": "leakbound.models.small:MLP",
        "mlp_wide": "leakbound.models.small:WideMLP",
        "cnn": "leakbound.models.small:CNN",
        "alexnet": "leakbound.models.large:AlexNet",
        "vgg16": "leakbound.models.large:VGG16",
        "resnet10": "leakbound.models.large:ResNet10",
    },
)

MECHANISMS = Registry(
    "mechanism",
    {
        "none": "leakbound.config.defenses:Undefended",
        "early_stopping": "leakbound.config.defenses:EarlyStopping",
        "stopped": "leakbound.config.defenses:Stopped",
        "channel": "leakbound.config.defenses:ChannelDefense",
        "dpsgd": "leakbound.config.defenses:DPSGD",
        "dppsac": "leakbound.config.defenses:DPPSAC",
        "channel_dpsgd": "leakbound.config.defenses:ChannelDPSGD",
        "parameter_noise": "leakbound.config.defenses:ParameterNoise",
        "gradient_compression": "leakbound.config.defenses:GradientCompression",
        "large_batch": "leakbound.config.defenses:LargeBatch",
        "compression": "leakbound.config.defenses:Compression",
    },
)
"""Mechanism of a defense to the class of its settings, which names its trainer."""

ATTACKS = Registry(
    "attack",
    {
        "membership": "leakbound.config.attacks:MembershipConfig",
        "membership_uploads": "leakbound.config.attacks:UploadMembershipConfig",
        "model_inversion": "leakbound.config.attacks:ModelInversionConfig",
        "gradient_inversion": "leakbound.config.attacks:GradientInversionConfig",
        "uses": "leakbound.config.attacks:UsesConfig",
        "spear": "leakbound.config.attacks:SpearConfig",
        "gradient_capacity": "leakbound.config.attacks:GradientCapacityConfig",
        "naming": "leakbound.config.attacks:NamingConfig",
        "audit": "leakbound.config.attacks:AuditConfig",
    },
)
"""Attack to the class of its settings, which names its function."""

ILLUSTRATIONS = Registry(
    "illustration",
    {
        "capacity_surface": "leakbound.papers.tan2024.closed_forms:capacity_surface",
        "toy_example": "leakbound.papers.tan2024.closed_forms:toy_example",
        "noisy_images": "leakbound.papers.tan2024.noisy_pictures:noisy_images",
        "compression": "leakbound.papers.tan2024.closed_forms:dropped_eigenvalues",
        "weights": "leakbound.papers.tan2024.closed_forms:weight_map",
        "shapes": "leakbound.papers.tan2024.closed_forms:shape_costs",
        "personalized_cost": "leakbound.papers.tan2024.closed_forms:personalized_cost",
        "leakage": "leakbound.papers.tan2024.closed_forms:shape_leakage",
        "covariance_leak": "leakbound.papers.tan2024.covariance_leaks:covariance_leak",
        "reconstructions": "leakbound.papers.tan2024.reconstructions:reconstructions",
    },
)

PLOTS = Registry(
    "plot",
    {
        "surface": "leakbound.figures.plots.analytic:surface",
        "densities": "leakbound.figures.plots.analytic:densities",
        "compression": "leakbound.figures.plots.analytic:compression",
        "shapes": "leakbound.figures.plots.analytic:shapes",
        "weights": "leakbound.figures.plots.picture_grids:weights",
        "image_grid": "leakbound.figures.plots.picture_grids:image_grid",
        "levels": "leakbound.figures.plots.lines:levels",
        "heatmap": "leakbound.figures.plots.heatmaps:heatmap",
        "plane": "leakbound.figures.plots.planes:plane",
        "recipes": "leakbound.figures.plots.recipes:recipes",
        "beyond": "leakbound.figures.plots.recipes:beyond",
        "noise_surface": "leakbound.figures.plots.analytic:noise_surface",
        "table": "leakbound.figures.plots.drawn_table:table",
        "budgets": "leakbound.figures.plots.times:budgets",
        "times": "leakbound.figures.plots.times:times",
        "verdicts": "leakbound.figures.plots.verdicts:verdicts",
    },
)

CLAIM_TESTS = Registry(
    "claim_test",
    {
        "increasing": "leakbound.claims.trends:increasing",
        "decreasing": "leakbound.claims.trends:decreasing",
        "ordered": "leakbound.claims.trends:ordered",
        "greater": "leakbound.claims.differences:greater",
        "less": "leakbound.claims.differences:less",
        "within": "leakbound.claims.differences:within",
        "at_most": "leakbound.claims.differences:at_most",
        "equals": "leakbound.claims.differences:equals",
        "steeper": "leakbound.claims.trends:steeper",
        "concordant": "leakbound.claims.trends:concordant",
        "discordant": "leakbound.claims.trends:discordant",
        "front": "leakbound.claims.fronts:front",
        "beyond": "leakbound.claims.recipe_fronts:beyond",
    },
)

KINDS: Mapping[str, Registry] = {
    f"{registry.kind}s": registry
    for registry in (DATASETS, MODELS, SHAPES, MECHANISMS, ATTACKS, PLOTS, ILLUSTRATIONS, CLAIM_TESTS)
}
"""Registries to which a configuration may add entries, by their key under ``plugins``."""
