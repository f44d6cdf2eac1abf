"""Built-in datasets, models, mechanisms of defenses, attacks and plots by name, one line each."""

from collections.abc import Mapping

from leakbound.registry import SHAPES, Registry

DATASETS = Registry(
    "dataset",
    {
        "digits": "leakbound_lab.datasets.digits:read",
        "mnist": "leakbound_lab.datasets.images:read_mnist",
        "fashion_mnist": "leakbound_lab.datasets.images:read_fashion_mnist",
        "cifar10": "leakbound_lab.datasets.images:read_cifar10",
        "svhn": "leakbound_lab.datasets.images:read_svhn",
        "celeba": "leakbound_lab.datasets.images:read_celeba",
        "parquet": "leakbound_lab.datasets.images:read_parquet",
        "parquet_shown": "leakbound_lab.datasets.images:read_shown_parquet",
        "folders": "leakbound_lab.datasets.class_folders:read_folders",
        "table": "leakbound_lab.datasets.tabular:read_table",
        "table_shown": "leakbound_lab.datasets.tabular:read_shown_table",
    },
)

MODELS = Registry(
    "model",
    {
        "lenet": "leakbound_lab.models.small:LeNet",
        "lenet_sigmoid": "leakbound_lab.models.small:SigmoidLeNet",
        "mlp": "leakbound_lab.models.small:MLP",
        "mlp_wide": "leakbound_lab.models.small:WideMLP",
        "cnn": "leakbound_lab.models.small:CNN",
        "alexnet": "leakbound_lab.models.large:AlexNet",
        "vgg16": "leakbound_lab.models.large:VGG16",
        "resnet10": "leakbound_lab.models.large:ResNet10",
    },
)

MECHANISMS = Registry(
    "mechanism",
    {
        "none": "leakbound_lab.config.defenses:Undefended",
        "early_stopping": "leakbound_lab.config.defenses:EarlyStopping",
        "stopped": "leakbound_lab.config.defenses:Stopped",
        "channel": "leakbound_lab.config.defenses:ChannelDefense",
        "dpsgd": "leakbound_lab.config.defenses:DPSGD",
        "dppsac": "leakbound_lab.config.defenses:DPPSAC",
        "channel_dpsgd": "leakbound_lab.config.defenses:ChannelDPSGD",
        "parameter_noise": "leakbound_lab.config.defenses:ParameterNoise",
        "gradient_compression": "leakbound_lab.config.defenses:GradientCompression",
        "large_batch": "leakbound_lab.config.defenses:LargeBatch",
        "compression": "leakbound_lab.config.defenses:Compression",
        "dpmf": "leakbound_lab.config.defenses:DPMF",
        "pac": "leakbound_lab.config.defenses:PACPrivacy",
    },
)
"""Mechanism of a defense to the class of its settings, which names its trainer."""

ATTACKS = Registry(
    "attack",
    {
        "membership": "leakbound_lab.config.attacks:MembershipConfig",
        "membership_uploads": "leakbound_lab.config.attacks:UploadMembershipConfig",
        "model_inversion": "leakbound_lab.config.attacks:ModelInversionConfig",
        "gradient_inversion": "leakbound_lab.config.attacks:GradientInversionConfig",
        "uses": "leakbound_lab.config.attacks:UsesConfig",
        "spear": "leakbound_lab.config.attacks:SpearConfig",
        "van_trees": "leakbound_lab.config.attacks:VanTreesConfig",
        "gradient_capacity": "leakbound_lab.config.attacks:GradientCapacityConfig",
        "naming": "leakbound_lab.config.attacks:NamingConfig",
        "audit": "leakbound_lab.config.attacks:AuditConfig",
    },
)
"""Attack to the class of its settings, which names its function."""

ILLUSTRATIONS = Registry(
    "illustration",
    {
        "capacity_surface": "leakbound_lab.papers.tan2024.closed_forms:capacity_surface",
        "toy_example": "leakbound_lab.papers.tan2024.closed_forms:toy_example",
        "noisy_images": "leakbound_lab.papers.tan2024.noisy_pictures:noisy_images",
        "compression": "leakbound_lab.papers.tan2024.closed_forms:dropped_eigenvalues",
        "weights": "leakbound_lab.papers.tan2024.closed_forms:weight_map",
        "shapes": "leakbound_lab.papers.tan2024.closed_forms:shape_costs",
        "personalized_cost": "leakbound_lab.papers.tan2024.closed_forms:personalized_cost",
        "leakage": "leakbound_lab.papers.tan2024.closed_forms:shape_leakage",
        "covariance_leak": "leakbound_lab.papers.tan2024.covariance_leaks:covariance_leak",
        "reconstructions": "leakbound_lab.papers.tan2024.reconstructions:reconstructions",
    },
)

PLOTS = Registry(
    "plot",
    {
        "surface": "leakbound_lab.figures.plots.analytic:surface",
        "densities": "leakbound_lab.figures.plots.analytic:densities",
        "compression": "leakbound_lab.figures.plots.analytic:compression",
        "shapes": "leakbound_lab.figures.plots.analytic:shapes",
        "weights": "leakbound_lab.figures.plots.picture_grids:weights",
        "image_grid": "leakbound_lab.figures.plots.picture_grids:image_grid",
        "levels": "leakbound_lab.figures.plots.lines:levels",
        "heatmap": "leakbound_lab.figures.plots.heatmaps:heatmap",
        "plane": "leakbound_lab.figures.plots.planes:plane",
        "recipes": "leakbound_lab.figures.plots.recipes:recipes",
        "beyond": "leakbound_lab.figures.plots.recipes:beyond",
        "noise_surface": "leakbound_lab.figures.plots.analytic:noise_surface",
        "table": "leakbound_lab.figures.plots.drawn_table:table",
        "budgets": "leakbound_lab.figures.plots.times:budgets",
        "times": "leakbound_lab.figures.plots.times:times",
        "verdicts": "leakbound_lab.figures.plots.verdicts:verdicts",
    },
)

CLAIM_TESTS = Registry(
    "claim_test",
    {
        "increasing": "leakbound_lab.claims.trends:increasing",
        "decreasing": "leakbound_lab.claims.trends:decreasing",
        "ordered": "leakbound_lab.claims.trends:ordered",
        "greater": "leakbound_lab.claims.differences:greater",
        "less": "leakbound_lab.claims.differences:less",
        "within": "leakbound_lab.claims.differences:within",
        "at_most": "leakbound_lab.claims.differences:at_most",
        "equals": "leakbound_lab.claims.differences:equals",
        "steeper": "leakbound_lab.claims.trends:steeper",
        "concordant": "leakbound_lab.claims.trends:concordant",
        "discordant": "leakbound_lab.claims.trends:discordant",
        "front": "leakbound_lab.claims.fronts:front",
        "beyond": "leakbound_lab.claims.recipe_fronts:beyond",
    },
)

KINDS: Mapping[str, Registry] = {
    f"{registry.kind}s": registry
    for registry in (DATASETS, MODELS, SHAPES, MECHANISMS, ATTACKS, PLOTS, ILLUSTRATIONS, CLAIM_TESTS)
}
"""Registries to which a configuration may add entries, by their key under ``plugins``."""
