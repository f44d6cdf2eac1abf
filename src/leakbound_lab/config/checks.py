"""Mistakes of a configuration whose values have the right types: unknown names, levels, sweeps, claims."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from leakbound import registry
from leakbound.words import shown
from leakbound_lab import registries
from leakbound_lab.config.catalogue import (
    EFFICIENCY,
    SCOREBOARD,
    SOURCES,
    STUDY_COLUMNS,
    ClaimConfig,
    FigureConfig,
    admitted,
    plain_values,
)
from leakbound_lab.config.data import ANY_SHAPE, ANY_SIDE, IMAGE_SIDE, size_of
from leakbound_lab.config.defenses import DPSGD, Defense
from leakbound_lab.config.messages import ConfigError, parse, unknown_name
from leakbound_lab.config.studies import StudyConfig
from leakbound_lab.config.whole import SECTIONS, Config

STORES = ("sqlite", "postgresql", "mysql", "mssql", "http", "https")
"""Kinds of tracking stores that MLflow keeps runs in."""
MOST_RUNS = 100_000
"""Largest number of runs of a configuration. A larger product of lists is a typing error."""
_TAKEN = {EFFICIENCY: "the section efficiency", SCOREBOARD: "all verdicts"}


def mistakes_of(config: Config) -> Iterator[str]:
    """Yield mistakes that types do not exclude: unknown names, and settings that contradict each other."""
    for kind, targets in config.plugins.model_dump().items():
        for name, target in targets.items():
            if problem := registry.absent(target):
                yield f"plugins.{kind}.{name} = {target!r}: {problem}"
    readers = registries.DATASETS.names(config.plugins.datasets)
    for name, dataset in config.datasets.items():
        key = f"datasets.{name}" if dataset.reader is None else f"datasets.{name}.reader"
        yield from unknown_name(key, dataset.reader or name, "dataset", readers)
    for name, defense in config.defenses.items():
        yield from _defense_mistakes(f"defenses.{name}", defense, config)
    yield from _list_mistakes(config)
    yield from _efficiency_mistakes(config)
    for name, study in config.studies.items():
        if name in _TAKEN:
            yield f"studies.{name}: its table would be that of {_TAKEN[name]}; give the study another name"
        yield from _study_mistakes(f"studies.{name}", study, config)
    for position, name in enumerate(config.only):
        yield from unknown_name(f"only[{position}]", name, "study", [*config.studies])
    for name, illustration in config.illustrations.items():
        key = f"illustrations.{name}"
        yield from _unknown(config, "illustration", {key: name})
        if illustration.dataset is not None:
            yield from _unknown(config, "dataset", {f"{key}.dataset": illustration.dataset})
        shapes = {f"{key}.levels.{shape}": shape for shape in illustration.levels}
        yield from _unknown(config, "shape", shapes)
    yield from _federated_mistakes(config)
    scheme, _, place = config.tracking.uri.partition("://")
    if scheme.partition("+")[0] not in STORES or place.lstrip("/") in ("", ":memory:"):
        yield (
            f"tracking.uri = {config.tracking.uri!r}: MLflow keeps no runs in plain folders or in memory; "
            "give a database (sqlite:///results/mlflow.db) or a server (http://127.0.0.1:5000)"
        )


def _unknown(config: Config, kind: str, names: Mapping[str, str]) -> Iterator[str]:
    """Yield a message for each name that is no dataset, model, shape, ... of the configuration.

    Args:
        config: Configuration.
        kind: Singular noun, e.g. ``"claim test"``.
        names: Key in the configuration to the name that stands there.
    """
    kinds = f"{kind.replace(' ', '_')}s"
    plugins = getattr(config.plugins, kinds)
    registered = sorted(config.datasets) if kind == "dataset" else registries.KINDS[kinds].names(plugins)
    for key, name in names.items():
        yield from unknown_name(key, name, kind, registered)


def _listed(key: str, names: Iterable[str]) -> dict[str, str]:
    """Map the key of each entry of a list to its name."""
    return {f"{key}[{index}]": name for index, name in enumerate(names)}


def _list_mistakes(config: Config) -> Iterator[str]:
    """Yield unknown names in the lists ``datasets`` and ``models`` of sections and studies."""
    sections = {name: getattr(config, name) for name in ("efficiency", *SECTIONS)}
    sections |= {f"studies.{name}": study for name, study in config.studies.items()}
    for key, section in sections.items():
        for kind in ("dataset", "model"):
            if isinstance(names := getattr(section, f"{kind}s", None), list | tuple):
                yield from _unknown(config, kind, _listed(f"{key}.{kind}s", names))


def _federated_mistakes(config: Config) -> Iterator[str]:
    """Yield mistakes of the federated section: huge sweeps, unknown names, more clients than members allow."""
    if (federated := config.federated) is None:
        return
    sweeps = (federated.mi_budgets, federated.client_counts, federated.max_param_norms)
    personal = (federated.budget_means, federated.budget_spreads)
    count = len(federated.models) * (2 * sum(map(len, sweeps)) + 3 * sum(map(len, personal)))
    if count > MOST_RUNS:
        yield f"federated: makes up to {count} runs, allowed are {MOST_RUNS}; shorten its lists"
    clients = federated.most_clients()
    each = federated.records or 1
    for source, model in federated.models.items():
        yield from _unknown(config, "dataset", {f"federated.models.{source}": source})
        yield from _unknown(config, "model", {f"federated.models.{source}": model})
        yield from _network_mistakes(f"federated.models.{source}", [model], [source], config)
        members = config.datasets[source].members if source in config.datasets else None
        if members is not None and clients * each > members:
            yield (
                f"federated: {clients} clients of at least {each} records each need {clients * each}, but "
                f"{source} has only {members} members; take fewer clients, or raise datasets.{source}.members"
            )


def _defense_mistakes(key: str, defense: Defense, config: Config) -> Iterator[str]:
    """Yield unknown shapes and datasets, and repeated or unequally many candidate learning rates."""
    if (channel := defense.channel) is not None:
        yield from _unknown(config, "shape", {f"{key}.shape": channel.shape})
    if isinstance(defense, DPSGD):
        yield from _unknown(config, "dataset", {f"{key}.deltas.{name}": name for name in defense.deltas})
    rates = defense.learning_rates or ()
    if len(set(rates)) < len(rates):
        yield f"{key}.learning_rates = {shown(rates)}: a candidate appears twice"
    budget = len(config.training.learning_rates)
    if rates and len(rates) != budget:
        yield (
            f"{key}.learning_rates = {shown(rates)}: every defense tries equally many learning rates; "
            f"give {budget}, as training.learning_rates has"
        )


def _study_mistakes(key: str, study: StudyConfig, config: Config) -> Iterator[str]:
    """Yield mistakes of a study: unknown names, levels or attacks that do not fit, too many runs."""
    lists = (study.datasets, study.models, study.rounds, study.batch_sizes)
    count = math.prod(map(len, lists)) * sum(len(levels) or 1 for levels in study.defenses.values())
    if count > MOST_RUNS:
        yield f"{key}: makes {count} runs, allowed are {MOST_RUNS}; split it, or shorten its lists"
    yield from _network_mistakes(f"{key}.models", study.models, study.datasets, config)
    others = sorted({*config.studies} - {key.removeprefix("studies.")})
    for where, name in _listed(f"{key}.also", study.also).items():
        yield from unknown_name(where, name, "study", others)
    for field in ("datasets", "models", "defenses", "rounds", "batch_sizes"):
        if not getattr(study, field):
            yield f"{key}.{field}: is empty; give at least one"
    yield from _sweep_mistakes(key, study.defenses, study.datasets, config)
    if 0 in study.rounds and not study.attacks:
        yield f"{key}.rounds = {shown(study.rounds)}: an untrained network that nobody attacks shows nothing"
    yield from _attack_mistakes(key, study, config)
    yield from _size_mistakes(key, study, config)
    yield from _table_mistakes(key, study, config)


def _attack_mistakes(key: str, study: StudyConfig, config: Config) -> Iterator[str]:
    """Yield attacks that are not declared, or that do not fit the networks or defenses of a study."""
    attacks = config.attacks.all()
    for where, name in _listed(f"{key}.attacks", study.attacks).items():
        if name not in attacks:
            custom = f"; declare it under attacks.custom, e.g. {name}: {{}}"
            hint = custom if name in config.plugins.attacks else ""
            for mistake in unknown_name(where, name, "attack", sorted(attacks)):
                yield f"{mistake}{hint}"
            continue
        attack = attacks[name]
        if attack.trained and 0 in study.rounds:
            yield f"{where} = {name!r}: attacks trained networks; give rounds of at least 1, not {shown(study.rounds)}"
        if not attack.trained and any(study.rounds):
            yield f"{where} = {name!r}: attacks the untrained network; give rounds: [0], not {shown(study.rounds)}"
        for arm in {*study.defenses} & {*config.known_defenses()}:
            levels = study.defenses[arm]
            problems = {attack.problem(config.defense(arm), level) for level in levels or (None,)}
            yield from (f"{key}.defenses.{arm} = {shown(levels)}: {problem}" for problem in problems - {None})


def _efficiency_mistakes(config: Config) -> Iterator[str]:
    """Yield mistakes of the table of training times: unknown names, wrong levels, nothing to compare with."""
    if (efficiency := config.efficiency) is None:
        return
    yield from _unknown(config, "dataset", {"efficiency.dataset": efficiency.dataset})
    yield from _network_mistakes("efficiency.models", efficiency.models, [efficiency.dataset], config)
    yield from _sweep_mistakes("efficiency", efficiency.defenses, [efficiency.dataset], config)
    defenses = config.known_defenses()
    for name in efficiency.defenses:
        if name in defenses and defenses[name].mechanism not in registries.MECHANISMS.builtin:
            yield f"efficiency.defenses.{name}: a trainer from outside cannot be timed step by step; leave it out"
    if "none" not in efficiency.defenses:
        yield "efficiency.defenses: lacks none, which all times are compared with; add none: []"


def _sweep_mistakes(
    key: str, sweep: dict[str, tuple[float, ...]], datasets: Iterable[str], config: Config
) -> Iterator[str]:
    """Yield defenses that are not declared, and levels that a defense cannot have on one of the datasets."""
    declared = config.known_defenses()
    sizes = [size_of(name, config.datasets[name]) for name in datasets if name in config.datasets]
    pixels = min((size.pixels for size in sizes if size.known), default=None)
    for name, levels in sweep.items():
        where = f"{key}.defenses.{name}"
        if name not in declared:
            yield from unknown_name(where, name, "defense", sorted(declared))
        elif not declared[name].has_level:
            if levels:
                yield f"{where} = {shown(levels)}: an undefended run has no level; give []"
        else:
            if not levels:
                yield f"{where}: needs at least one level"
            for index, level in enumerate(levels):
                if (problem := declared[name].level_problem(level, pixels)) is not None:
                    yield f"{where}[{index}] = {level}: {problem}"
            if len(set(levels)) < len(levels):
                yield f"{where} = {shown(levels)}: a level appears twice"


def _network_mistakes(
    key: str, models: Iterable[str], datasets: Iterable[str], config: Config
) -> Iterator[str]:
    """Yield built-in networks that cannot take the images of a dataset. Others raise when they are made."""
    builtin = [name for name in models if name in registries.MODELS.builtin]
    fixed = [name for name in builtin if name not in ANY_SIDE]
    for dataset in datasets:
        if dataset in config.tables:
            yield from (
                f"{key} = {model}: takes images, and datasets.{dataset} is a table; use {', '.join(ANY_SHAPE)}"
                for model in builtin
                if model not in ANY_SHAPE
            )
            continue
        side = config.datasets[dataset].side if dataset in config.datasets else IMAGE_SIDE
        for model in fixed if side != IMAGE_SIDE else ():
            yield (
                f"{key} = {model}: takes images of {IMAGE_SIDE}×{IMAGE_SIDE} pixels, but "
                f"datasets.{dataset}.side = {side}; use one of {', '.join(ANY_SIDE)}, or leave side out"
            )


def _table_mistakes(key: str, study: StudyConfig, config: Config) -> Iterator[str]:
    """Yield settings that a table cannot have: noise in a rectangle of images, or a learned estimate."""
    tables = [name for name in study.datasets if name in config.tables]
    channels = {name: config.defense(name).channel for name in {*study.defenses} & {*config.known_defenses()}}
    for name, channel in channels.items() if tables else ():
        if channel is not None and channel.shape == "personalized":
            yield (
                f"{key}.defenses.{name}: has more noise in a rectangle of images, and datasets.{tables[0]} "
                "is a table; take natural or white"
            )
    steps = config.attacks.gradient_inversion.estimator.steps
    if tables and steps and "gradient_inversion" in study.attacks and any(channels.values()):
        yield (
            f"attacks.gradient_inversion.estimator.steps = {steps}: learned estimates are of images, and "
            f"datasets.{tables[0]} is a table; give 0"
        )


def _size_mistakes(key: str, study: StudyConfig, config: Config) -> Iterator[str]:
    """Yield batches that are larger than the number of members, or that a defense cannot make of them."""
    declared = config.known_defenses()
    for dataset in study.datasets:
        if dataset not in config.datasets or (members := config.datasets[dataset].members) is None:
            continue
        advice = (
            f"{dataset} has only {members} members; raise datasets.{dataset}.members or use smaller batches"
        )
        for index, size in enumerate(study.batch_sizes):
            if size > members:
                yield f"{key}.batch_sizes[{index}] = {size}: {advice}"
        largest = max((size for size in study.batch_sizes if size <= members), default=0)
        for name, levels in study.defenses.items():
            for index, size in enumerate(study.batch_sizes if name in declared else ()):
                fits = size <= members
                if fits and (problem := declared[name].batch_problem(members, size)) is not None:
                    yield f"{key}.batch_sizes[{index}] = {size}: {problem}"
            for index, level in enumerate(levels if name in declared else ()):
                records = declared[name].records_in_step(level, largest)
                if records > members:
                    yield f"{key}.defenses.{name}[{index}] = {level}: makes batches of {records}, but {advice}"


def _option_mistakes(
    where: str, registered: registry.Registry, name: str, options: dict[str, Any]
) -> Iterator[str]:
    """Yield options that a plot or a claim test does not know. Those from outside check their own options."""
    if name in registered.names() and (model := getattr(registered.get(name), "settings", None)):
        try:
            parse(model, options, where)
        except ConfigError as error:
            yield from str(error).splitlines()


def figure_mistakes(figure: FigureConfig, config: Config) -> Iterator[str]:
    """Yield mistakes of a figure: unknown names and options, and runs that it would mix up."""
    key = f"figures.{figure.paper}/{figure.id}"
    yield from _unknown(config, "plot", {f"{key}.plot": figure.plot})
    yield from _option_mistakes(f"{key}.options", registries.PLOTS, figure.plot, figure.options)
    for claim in figure.claims:
        where = f"{key}.claims.{claim.id}"
        yield from _unknown(config, "claim test", {f"{where}.test": claim.test})
        mistakes = list(
            _option_mistakes(f"{where}.options", registries.CLAIM_TESTS, claim.test, claim.options)
        )
        yield from mistakes or claim_mistakes(where, claim, figure, config)
    yield from _source_mistakes(key, figure, config)
    conditions = figure.options.get("where")
    where_of_options = conditions if isinstance(conditions, dict) else None
    yield from excluded_mistakes(f"{key}.options.where", where_of_options, figure)
    study = config.studies.get(figure.study or "")
    if study is not None:
        yield from _selection_mistakes(key, figure, config)
    for field, column in (("rounds", "rounds"), ("batch_sizes", "batch_size")):
        if study is not None and len(getattr(study, field)) > 1 and not figure.compares(column):
            yield (
                f"{key}: compares runs of one length and batch size, but studies.{figure.study}.{field} = "
                f"{shown(getattr(study, field))}; put the others into a study of their own, or draw them, "
                f"e.g. by options.x: {column}"
            )


def _source_mistakes(key: str, figure: FigureConfig, config: Config) -> Iterator[str]:
    """Yield mistakes of the table that a figure shows, if it is not that of a study."""
    if figure.table is None:
        return
    section, _, table = figure.table.partition("/")
    if not (table and section in SECTIONS):
        known_tables = [EFFICIENCY, SCOREBOARD, *(f"{name}/TABLE" for name in SECTIONS)]
        yield from unknown_name(f"{key}.table", figure.table, "table", known_tables)
    elif (settings := getattr(config, section)) is not None:
        yield from unknown_name(f"{key}.table", table, f"table of {section}", sorted(settings.TABLES))


def _selection_mistakes(key: str, figure: FigureConfig, config: Config) -> Iterator[str]:
    """Yield columns and sources of a figure's selection that tables of studies do not have."""
    for column in figure.select:
        yield from unknown_name(f"{key}.select", column, "column", list(STUDY_COLUMNS))
    sources = [*SOURCES, *registries.ATTACKS.names(config.plugins.attacks)]
    for source in plain_values(figure.select.get("source", {})):
        yield from unknown_name(f"{key}.select.source", str(source), "source", sources)


def claim_mistakes(where: str, claim: ClaimConfig, figure: FigureConfig, config: Config) -> Iterator[str]:
    """Yield mistakes of a claim whose options its test knows."""
    tests = registries.CLAIM_TESTS
    check = getattr(tests.get(claim.test), "check", None) if claim.test in tests.names() else None
    if check is None:  # a test from outside raises when it runs
        return
    options = check(claim.options)
    yield from _delta_mistakes(where, claim, getattr(options, "exact", False))
    yield from _match_mistakes(f"{where}.options.match", options, figure, config)
    for part in ("where", "a", "b"):
        yield from excluded_mistakes(f"{where}.options.{part}", getattr(options, part, None), figure)


def excluded_mistakes(where: str, conditions: Any, figure: FigureConfig) -> Iterator[str]:
    """Yield conditions on the rows of a figure that its own ``select`` contradicts.

    Args:
        where: Key of the conditions.
        conditions: Column to what rows must have, or None.
        figure: Entry of the catalogue.
    """
    for column, wanted in (conditions or {}).items():
        values = plain_values(wanted)
        if column in figure.select and values and not figure.admitted(column, values):
            yield (
                f"{where}.{column} = {shown(wanted)}: the figure's select.{column} = "
                f"{shown(figure.select[column])} leaves no such row"
            )


def _match_mistakes(where: str, options: Any, figure: FigureConfig, config: Config) -> Iterator[str]:
    """Yield a claim that matches two series by their levels, of which only one has levels."""
    study = config.studies.get(figure.study or "")
    match = getattr(options, "match", ())
    if study is None or not {"level", "strength"} & {*match}:
        return
    declared = config.known_defenses()
    with_levels: dict[bool, str] = {}
    for side in getattr(options, "series", None) or (options.a, options.b):
        wanted = {**figure.select, **options.where, **(side or {})}.get("defense")
        names = admitted(wanted, declared.keys() & study.defenses.keys()) if side is not None else ()
        kinds = {declared[name].has_level for name in names}
        if len(kinds) == 1:
            with_levels |= {kinds.pop(): ", ".join(sorted(names))}
    if len(with_levels) == 2:
        rest = [column for column in match if column not in ("level", "strength")]
        yield (
            f"{where} = {shown(match)}: {with_levels[False]}, without a level, and {with_levels[True]} share "
            f"no level, so nothing matches and the claim stays undecided; write match: {shown(rest)}"
        )


def _delta_mistakes(where: str, claim: ClaimConfig, exact: bool) -> Iterator[str]:
    """Yield a smallest effect of interest that is missing, or one given for a closed form."""
    if exact and claim.delta is not None:
        yield f"{where}.delta = {claim.delta:g}: closed forms hold or fail without chance; leave out delta and unit"
    elif not exact:
        try:
            claim.smallest_effect()
        except ValueError as error:
            yield f"{where}: {error}"
