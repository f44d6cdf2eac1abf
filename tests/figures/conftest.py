"""Results of runs as training and attacks would leave them, with effects of known size."""

from collections.abc import Callable, Collection, Iterator

import numpy as np
import pandas as pd
import pytest
from attack_rows import Part, rows_of

from leakbound.accounting.lower_limits import Evidence, evidence, evidence_rows
from leakbound.claims.tabulation import RunResults, tabulate

CHANNELS = {"natural": 0.0, "white": 0.09, "personalized": 0.03}
PRIVATE = {"dpsgd": 0.02, "dppsac": 0.0}
LEVELS = (1.0, 4.0, 16.0)
MULTIPLIERS = (0.5, 1.5, 2.0)
OTHERS = {
    "parameter_noise": (0.01, 0.03, 0.1),
    "gradient_compression": (0.01, 0.1, 0.5),
    "large_batch": (2.0, 4.0, 8.0),
}
SHAPES = ("natural", "white", "personalized", "least_power", "rate_distortion", "natural_frozen")
BATCHES = (1, 2, 4, 8)
LENGTHS = (150, 300, 600, 1200)


def tried(replicas: int) -> pd.DataFrame:
    """One candidate learning rate for each replica, as the chosen one inside its grid."""
    inside = {"learning_rate": 0.01, "chosen": True, "at_edge": False, "diverged": False, "kept": True}
    return pd.DataFrame({"replica": range(replicas), **inside})


def results_of(setting: str, defense: str, level: float | None, rounds: int, batch_size: int, **more) -> RunResults:
    """Results of a run on ``dataset/network``."""
    dataset, model = setting.split("/")
    run = f"{setting}/{defense}-{level}/n{rounds}-b{batch_size}"
    return RunResults(run, dataset, model, defense, level, rounds, batch_size, **more)


def leak(defense: str, level: float | None) -> float:
    """Between 0 (everything is hidden) and 1 (nothing is)."""
    if level is None:
        return 1.0
    if defense in PRIVATE or defense in ("parameter_noise", "large_batch"):
        return 1 / (1 + level)
    return level / (2 + level)


def likeness(replica: int, variant: str, errors: np.ndarray) -> Iterator[Part]:
    """All metrics of pictures with these errors."""
    metrics = {"mse": errors, "psnr": -10 * np.log10(errors), "ssim": 0.9 - 2 * errors, "cosine": 1 - 1.5 * errors}
    for metric, values in metrics.items():
        yield Part(replica, variant, metric, values)


def inversion(replica: int, openness: float, generator: np.random.Generator) -> Iterator[Part]:
    start = np.linspace(0.018, 0.03, 10)
    printed = 0.02 + 0.3 * (1 - openness) ** 3 + 0.003 * generator.random(10)
    tuned = start * (1 - 0.5 * openness) + 0.001 * generator.random(10)
    for variant, errors in (("start", start), ("printed", printed), ("tuned", tuned)):
        yield from likeness(replica, variant, errors)
        if variant != "start":
            yield Part(replica, variant, "gain", start - errors)
            yield Part(replica, variant, "gain_over_aux", 1 - errors / 6e-4)
            yield Part(replica, variant, "gain_on_others", 1 - errors / 5e-4)
    yield Part(replica, "informed", "gain_over_aux", 0.05 * openness + 0.01 * generator.random(10))
    yield Part(replica, "informed", "gain_on_others", 0.01 * generator.normal(size=10))


def membership(replica: int, openness: float, generator: np.random.Generator) -> Iterator[Part]:
    values = {"white_box_references": 0.5 + 0.17 * openness, "loss_threshold": 0.5 + 0.1 * openness}
    rows = [(variant, "auc", auc + 0.01 * generator.normal()) for variant, auc in values.items()]
    behind = {"strongest": 0.0, "white_box": 0.03, "rmia": 0.01, "lira_online": 0.02, "lira_offline": 0.03}
    rows += [(variant, "auc", rows[0][2] - less * openness) for variant, less in behind.items()]
    for variant, metric, value in rows:
        yield Part(replica, variant, metric, np.array([value]), unit=-1)


def trained(
    dataset: str,
    model: str,
    defense: str,
    level: float | None,
    replicas: int,
    generator: np.random.Generator,
    rounds: int = 600,
) -> RunResults:
    openness = leak(defense, level) * rounds / 600 / (0.2 + 0.8 * rounds / 600)
    cost = {**CHANNELS, **PRIVATE}.get(defense, 0.0)
    curves, members, inverted = [], [], []
    for replica in range(replicas):
        accuracy = 0.55 + 0.4 * openness - cost + 0.012 * generator.normal()
        for step, share in ((rounds // 2, 0.7), (rounds, 1.0)):
            values = {"test_accuracy": share * accuracy, "train_accuracy": share * min(1.0, accuracy + 0.1 * openness)}
            curves += [(replica, step, metric, value) for metric, value in values.items()]
        members += membership(replica, openness, generator)
        inverted += inversion(replica, openness, generator)
    aucs = rows_of(members)
    aucs = aucs.assign(low=aucs["value"] - 0.03, high=aucs["value"] + 0.03)
    return results_of(
        f"{dataset}/{model}",
        defense,
        level,
        rounds,
        64,
        rates=tried(replicas),
        curves=pd.DataFrame(curves, columns=["replica", "step", "metric", "value"]).assign(learning_rate=0.01),
        attacks={
            "evidence": evidence_rows(
                [
                    Evidence("weights", -1, "nats", 0.1 * openness, 50.0, replicas, "strongest"),
                    Evidence("canaries", -1, "nats", 0.3 * openness, 50.0, replicas, "strongest"),
                    Evidence("canaries", -1, "epsilon", openness, 5.0, 40 * replicas, "strongest"),
                ]
            ),
            "membership": aucs.assign(learning_rate=0.01),
            "membership_uploads": aucs[aucs["variant"] == "strongest"].assign(
                variant="likelihood",
                value=lambda rows: 1 - (1 - rows["value"]) / 4,
                low=np.nan,
                high=np.nan,
                learning_rate=0.01,
            ),
            "model_inversion": rows_of(inverted).assign(learning_rate=0.01),
        },
    )


def inverted_gradients(
    dataset: str, defense: str, level: float | None, replicas: int, generator: np.random.Generator, batch_size: int = 1
) -> RunResults:
    hidden = 1 - leak(defense, level) + CHANNELS.get(defense, 0.0)
    if defense == "compression":
        hidden = 0.5 / (1 + (level or 0.0))
    if batch_size > 1:
        slopes = {"dpsgd": -0.1, "none": 0.1, "parameter_noise": 0.25}
        hidden += slopes.get(defense, 0.0) * np.log(batch_size)
    parts: list[Part] = []
    for replica in range(replicas):
        prior = (0.05 + 0.03 * generator.random(8)) / batch_size**0.5
        attack = 0.007 + 0.12 * hidden * (0.8 + 0.4 * generator.random(8))
        results = {"attack": attack, "geiping": 2 * attack, "untuned": 2.8 * attack, "prior": prior}
        results["unstaged"] = 1.5 * attack
        if defense not in ("none", "dpsgd", "parameter_noise"):
            results |= {"oracle": 1.02 * attack, "learned_oracle": 0.9 * attack, "linear": 1.1 * attack}
        for variant, errors in results.items():
            parts += likeness(replica, variant, errors)
            if variant == "attack":
                parts.append(Part(replica, variant, "matched_mse", errors * batch_size))
            if variant in ("attack", "geiping", "untuned"):
                parts.append(Part(replica, variant, "bounded_mse", np.minimum(errors, prior)))
                parts.append(Part(replica, variant, "relative_mse", errors / prior * batch_size**-0.5))
    attacks = {"gradient_inversion": rows_of(parts)}
    return results_of(f"{dataset}/lenet_sigmoid", defense, level, 0, batch_size, attacks=attacks)


def used(defense: str, level: float, replicas: int, generator: np.random.Generator) -> RunResults:
    """Errors after some uses of a channel, which fall with fresh noise."""
    parts = []
    for replica in range(replicas):
        for uses in (1, 4, 16):
            line = 0.01 / (1 if defense.endswith("frozen") else uses)
            values = {"line": line, "attack": line * (0.97 + 0.06 * generator.random()), "prior": 0.05}
            for variant, value in values.items():
                parts.append(Part(replica, variant, "mse", np.array([value]), unit=uses))
    return results_of("digits/lenet_sigmoid", defense, level, 0, 1, attacks={"uses": rows_of(parts)})


def measured(rounds: int, replicas: int, generator: np.random.Generator) -> RunResults:
    parts = []
    for replica in range(replicas):
        values = {"printed": 200.0, "corrected": 98.0, "trace": 60.0, "measured": 30.0}
        for variant, value in values.items():
            jitter = 0.0 if variant in ("printed", "corrected") else generator.normal()
            parts.append(Part(replica, variant, "capacity", np.array([value + jitter]), unit=-1))
    attacks = {"gradient_capacity": rows_of(parts).assign(learning_rate=0.01)}
    return results_of("digits/lenet", "dpsgd", 0.57, rounds, 64, rates=tried(replicas), attacks=attacks)


def audited(defense: str, level: float, replicas: int, generator: np.random.Generator) -> RunResults:
    """Naming among candidates, and for DP an audit of uploads, with evidence below its bounds."""
    parts = []
    for replica in range(replicas):
        for uses in (1, 4, 16):
            nats = uses * (level if defense == "natural" else 1 / (2 * level**2))
            parts.append(Part(replica, "bound", f"nats_{uses}", np.array([nats]), unit=-1))
            for count in (2, 10, 100):
                exact = 1 / count + (1 - 1 / count) * nats / (nats + 3 * np.log(count))
                hits = generator.binomial(60, [exact, 0.8 * exact]) / 60
                named = {"bound": min(1.0, 1.1 * exact), "exact_images": exact, "images": hits[0], "gradients": hits[1]}
                for variant, rate in named.items():
                    parts.append(Part(replica, variant, f"rate_{uses}", np.array([rate]), unit=count))
        for variant in ("images", "gradients"):
            parts.append(Part(replica, variant, "trials", np.array([60.0]), unit=-1))
    attacks = {"naming": rows_of(parts)}
    if defense == "dpsgd":
        noise = 1 + 0.05 * generator.random(replicas)
        limits = {"bound": 5 / level + 0 * noise, "gaussian": 2.5 / level / noise, "one_run": 1.8 / level / noise}
        attacks["audit"] = rows_of(
            Part(replica, variant, "epsilon", values[[replica]], unit=-1)
            for variant, values in limits.items()
            for replica in range(replicas)
        )
    attacks["evidence"] = evidence_rows(evidence({"naming": attacks["naming"]}))
    return results_of("digits/lenet_sigmoid", defense, level, 0, 1, attacks=attacks)


def sweep(private: bool = True) -> list[tuple[str, float | None]]:
    pairs: list[tuple[str, float | None]] = [("none", None)]
    pairs += [(defense, level) for defense in CHANNELS for level in LEVELS]
    return pairs + [(defense, level) for defense in PRIVATE for level in MULTIPLIERS if private]


@pytest.fixture(scope="session")
def make_study() -> Callable[..., pd.DataFrame]:
    def make(
        datasets: tuple[str, ...] = ("digits",),
        models: tuple[str, ...] = ("lenet",),
        replicas: int = 3,
        defenses: Collection[str] = ("none", *CHANNELS, *PRIVATE),
    ):
        generator = np.random.default_rng(5)
        settings = [(dataset, model) for dataset in datasets for model in models]
        pairs = [pair for pair in sweep() if pair[0] in defenses]
        return tabulate(trained(*setting, *pair, replicas, generator) for setting in settings for pair in pairs)

    return make


RATES = (0.003, 0.01, 0.03, 0.1)
ARMS: dict[str, tuple[float | None, ...]] = {
    "none": (None,),
    "early_stopping": (None,),
    "stopped": (0.125, 0.25, 0.5),
    "natural": (50.0, 100.0, 300.0),
    "white": (500.0, 1000.0, 1500.0),
    "personalized": (500.0, 1000.0),
    "dpsgd": (0.2066, 0.46, 0.8),
    "dppsac": (0.46, 0.8),
    "clipping": (0.0,),
}
AHEAD = {"white": 0.05, "dpsgd": -0.04}
"""Accuracy that an arm has beyond plain SGD at equal leakage; the others are plain SGD at another speed."""
EPSILONS = {("dpsgd", 0.2066): 391.76, ("dpsgd", 0.46): 40.97, ("dpsgd", 0.8): 9.19, ("clipping", 0.0): np.inf}


def slot_rows(identity: dict[str, object], progress: float, noise: np.ndarray) -> list[dict[str, object]]:
    """Rows of one slot: plain SGD's accuracy and leakage after so much progress, and what the arm has beyond that."""
    ahead = AHEAD.get(str(identity["defense"]), 0.0)
    accuracy = 0.1 + 0.35 * (1 - np.exp(-3 * progress)) + ahead * min(1.0, 4 * progress) + 0.006 * noise[0]
    auc = 0.5 + 0.2 * progress**1.5 + 0.006 * noise[1]
    gain = 0.004 * progress + 0.0004 * noise[2]
    loss = 2.3 - 3 * accuracy
    metrics = {"test_accuracy": accuracy, "train_accuracy": min(1.0, accuracy + 0.3 * progress), "diverged": 0.0}
    metrics |= {"validation_accuracy": accuracy + 0.004 * noise[3], "validation_loss": loss, "test_loss": loss}
    rows: list[dict[str, object]] = [
        {"source": "training", "variant": "", "metric": name, "value": value} for name, value in metrics.items()
    ]
    leaks = {"auc": auc, "canary_tpr_at_fpr_0.001": (auc - 0.5) ** 2, "canary_auc": auc}
    rows += [
        {"source": "membership", "variant": "strongest", "metric": name, "value": value}
        for name, value in leaks.items()
    ]
    rows.append({"source": "model_inversion", "variant": "tuned", "metric": "gain", "value": gain})
    return [{**identity, "unit": -1, "status": "", **row} for row in rows]


def recipes_table(datasets: tuple[str, ...], replicas: int, seed: int = 11) -> pd.DataFrame:
    """Study that keeps all candidate rates: accuracy rises and members leak with progress, rate times rounds."""
    generator = np.random.default_rng(seed)
    rows: list[dict[str, object]] = []
    for dataset in datasets:
        shared = generator.normal(size=(replicas, 4))
        for defense, levels in ARMS.items():
            for rank, level in enumerate(levels):
                run = f"{dataset}/lenet/{defense}{'' if level is None else f'-{level:g}'}/n600-b64"
                known = {"run": run, "dataset": dataset, "model": "lenet", "defense": defense, "rounds": 600}
                known |= {"level": np.nan if level is None else level, "batch_size": 64}
                slowed = level if defense == "stopped" else 0.6 if defense == "early_stopping" else 1 - 0.2 * rank
                for replica in range(replicas):
                    for index, rate in enumerate(RATES):
                        progress = float(slowed or 1.0) * (index + 1) / len(RATES)
                        identity = {**known, "replica": replica, "learning_rate": rate}
                        rows += slot_rows(identity, progress, shared[replica] + 0.5 * generator.normal(size=4))
                if (defense, level) in EPSILONS:
                    told = {"source": "accounting", "variant": "replica", "metric": "epsilon", "unit": -1, "status": ""}
                    told |= {"replica": -1, "learning_rate": np.nan, "value": EPSILONS[defense, level]}
                    rows.append({**known, **told})
    table = pd.DataFrame(rows).assign(low=np.nan, high=np.nan)
    best = table[table["metric"] == "validation_accuracy"].sort_values("value").groupby(["run", "replica"]).last()
    rate = table.set_index(["run", "replica"]).index.map(best["learning_rate"]).to_numpy(float)
    table["chosen"] = table["learning_rate"].isna() | (table["learning_rate"] == rate)
    edges = table[table["metric"] == "diverged"].assign(metric="at_edge")
    edges["value"] = rate[edges.index] == RATES[-1]
    return pd.concat([table, edges.astype({"value": float})], ignore_index=True)


@pytest.fixture(scope="session")
def recipes() -> pd.DataFrame:
    """The comparison with all its recipes, on two datasets."""
    return recipes_table(("cifar10", "svhn"), 5)


@pytest.fixture(scope="session")
def study(make_study: Callable[..., pd.DataFrame]) -> pd.DataFrame:
    return make_study()


@pytest.fixture(scope="session")
def make_gradients() -> Callable[..., pd.DataFrame]:
    def make(replicas: int, datasets: tuple[str, ...] = ("digits",)):
        generator = np.random.default_rng(6)
        pairs = [(dataset, *pair) for dataset in datasets for pair in sweep(private=False)]
        return tabulate(inverted_gradients(*pair, replicas, generator) for pair in pairs)

    return make


@pytest.fixture(scope="session")
def gradients(make_gradients: Callable[..., pd.DataFrame]) -> pd.DataFrame:
    return make_gradients(8)


@pytest.fixture(scope="session")
def studies(
    study: pd.DataFrame, make_study: Callable[..., pd.DataFrame], make_gradients: Callable[..., pd.DataFrame]
) -> dict[str, pd.DataFrame]:
    """Rows of every study that the catalogue draws from; 7 blocks are the least that three claims need."""
    generator = np.random.default_rng(7)
    undefended: list[tuple[str, float | None]] = [("none", None)]

    def over(pairs: list[tuple[str, float | None]], lengths: tuple[int, ...] = (600,)) -> pd.DataFrame:
        return tabulate(trained("digits", "lenet", *pair, 7, generator, n) for n in lengths for pair in pairs)

    def inverted(pairs: list[tuple[str, float | None]], sizes: tuple[int, ...] = (1,)) -> pd.DataFrame:
        return tabulate(inverted_gradients("digits", *pair, 7, generator, b) for b in sizes for pair in pairs)

    arms = [*undefended, ("natural", 300.0)]
    own = np.random.default_rng(8)
    clients = tabulate(trained(name, "mlp", *arm, 8, own) for name in ("clients_01", "clients_20") for arm in arms)
    return {
        "uploads_clients": pd.concat([clients.assign(batch_size=size) for size in (8, 160)], ignore_index=True),
        "capacity": make_study(replicas=7),
        "comparison": study,
        "membership": study,
        "canaries": study,
        "gradient_inversion": make_gradients(8, ("digits", "fashion_mnist")),
        "rounds": over([*undefended, ("natural", 16.0)], LENGTHS),
        "shapes": over([*undefended, *((shape, level) for shape in SHAPES for level in (8.0, 16.0))]),
        "defenses": over([*undefended, *((name, level) for name in OTHERS for level in OTHERS[name])]),
        "batch": inverted([*undefended, ("dpsgd", 1.3), ("parameter_noise", 0.01)], BATCHES),
        "dp_capacity": tabulate(measured(rounds, 3, generator) for rounds in LENGTHS),
        "kinks": inverted([*undefended, ("natural", 16.0)]),
        "uses": tabulate(used(name, 16.0, 7, generator) for name in ("natural", "natural_frozen")),
        "uploads": over([*undefended, ("natural", 50.0), ("natural", 300.0), ("dpsgd", 0.2066), ("dpsgd", 0.8)]),
        "naming": tabulate(audited("natural", level, 7, generator) for level in LEVELS),
        "audit": tabulate(audited("dpsgd", level, 7, generator) for level in MULTIPLIERS),
        "compression": inverted([*undefended, *(("compression", float(index)) for index in (0, 1, 10))]),
    }


@pytest.fixture(scope="session")
def efficiency() -> pd.DataFrame:
    """Training times as the table has them: DP-SGD's overhead grows with the network, that of channels is 3 %."""
    generator = np.random.default_rng(8)
    rows = []
    for model, base, overhead in (("lenet", 20.0, 0.6), ("resnet10", 90.0, 1.2), ("vgg16", 400.0, 4.0)):
        for replica in range(12):
            plain = base * (1 + 0.02 * generator.random())
            for defense, level, extra in (
                ("none", np.nan, 0.0),
                ("dpsgd", 0.8, overhead),
                ("natural", 300.0, 0.03),
                ("white", 1000.0, 0.03),
                ("personalized", 1000.0, 0.03),
            ):
                seconds = plain * (1 + extra) * (1 + 0.01 * generator.random())
                found = {"seconds": seconds, "seconds_per_step": seconds / 19550}
                if defense != "none":
                    found["ratio"] = seconds / plain
                rows += [("cifar10", model, defense, level, replica, metric, value) for metric, value in found.items()]
    columns = ["dataset", "model", "defense", "level", "replica", "metric", "value"]
    return pd.DataFrame(rows, columns=columns).assign(source="efficiency")
