"""Types that all sections of a configuration share: names, lists, and the strict base class."""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, TypeAdapter, ValidationError

from leakbound.registry import Registry, absent
from leakbound.words import without_password

T = TypeVar("T", bound="Settings")
V = TypeVar("V")
LONGEST_LIST = 1000
"""Largest number of entries of a list that jobs are made from. A longer list is a typing error."""

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
Listed = Annotated[tuple[V, ...], Strict(False), Field(max_length=LONGEST_LIST)]
"""List of values of one type, of limited length."""
Some = Annotated[Listed[V], Field(min_length=1)]
"""At least one value."""
Names = Listed[Name]
Level = Annotated[float, Field(ge=0, le=1e12)]
Levels = Listed[Level]
Rates = Some[Annotated[float, Field(gt=0, le=100)]]
Weights = Some[Annotated[float, Field(ge=0, le=1e12)]]
Span = Annotated[tuple[int, int], Strict(False)]
Line = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""Text without line breaks and other control characters: a path, an address, a column."""
Target = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$", max_length=500)]
"""Object from outside the package, ``module:attribute``."""


def _of_no_secret(address: str) -> str:
    """Check that an address holds no secret.

    Raises:
        ValueError: If it holds a password, in whatever encoding. The message does not show it.
    """
    if without_password(address) != address:
        raise ValueError(
            "holds a password or a token, which would reach command lines, results and provenance; give the "
            "address without, and the password in the environment: MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD (or ~/.netrc) for a server, PGPASSWORD or ~/.pgpass (?passfile=... for "
            "another file) for PostgreSQL, the option file of its client for another database"
        )
    return address


Address = Annotated[Line, AfterValidator(_of_no_secret)]
"""Address of a server or a database, without a password."""

# Bounds of whole numbers. They are far above every sensible value, and low enough to stop a typing error before it
# exhausts the machine.
Steps = Annotated[int, Field(ge=1, le=10**8)]
"""Steps, iterations or epochs of a job."""
Records = Annotated[int, Field(ge=1, le=10**9)]
"""Records of a dataset or a batch."""
Count = Annotated[int, Field(ge=1, le=100_000)]
"""Number of objects that a job makes, or holds in memory."""
Seconds = Annotated[float, Field(gt=0)]
"""A span of time."""
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Replicas = Annotated[int, Field(ge=1, le=1000)]
"""Replicas of a run."""
PrivacyNoise = Literal["seeded", "secure"]
"""Origin of noise that protects records, as in :data:`leakbound.randomness.seeding.PrivacyNoise`."""


class Settings(BaseModel):
    """Base of all sections: immutable, no unknown keys, no silent conversion of types, no infinite numbers."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,  # in tracebacks: it may be a password
    )

    @classmethod
    def descriptions(cls) -> dict[str, str]:
        """Return the meaning of each setting: the text under it in its class, or in that where it is inherited from.

        Pydantic could keep these texts, but reads the sources for it in every process.
        """
        texts: dict[str, str] = {}
        for section in reversed(cls.__mro__):
            if issubclass(section, Settings):
                texts |= _texts_under_settings(section)
        return {name: texts[name] for name in cls.model_fields if texts.get(name)}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        """Return the schema of the class, with the meaning of each setting."""
        schema: dict[str, Any] = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in cls.descriptions().items():
            properties[name].setdefault("description", text)
        return schema


def _texts_under_settings(section: type[Settings]) -> dict[str, str]:
    """Read the texts under the settings that a class declares, empty where there is none, or no source."""
    try:
        source = textwrap.dedent(inspect.getsource(section))
    except (OSError, TypeError):  # written in a console
        return {}
    body = ast.parse(source).body[0].body  # type: ignore[attr-defined]
    texts = {}
    for node, following in zip(body, [*body[1:], ast.Pass()], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            value = following.value if isinstance(following, ast.Expr) else None
            text = value.value if isinstance(value, ast.Constant) else ""
            texts[node.target.id] = inspect.cleandoc(text) if isinstance(text, str) else ""
    return texts


def part_of(settings: T, names: Iterable[str]) -> T:
    """Return settings with some of their values, and defaults of all others, which a job must not depend on.

    Args:
        settings: A checked section of a configuration.
        names: Fields to keep.
    """
    return type(settings).model_construct(**{name: getattr(settings, name) for name in names})


class TableSection(Settings):
    """Base of a section of the configuration that makes tables, named ``<section>/<table>``.

    Attributes:
        TABLES: Names of all tables that it can make.
    """

    TABLES: ClassVar[tuple[str, ...]]

    def tables(self) -> tuple[str, ...]:
        """List the tables that it makes with its settings, by default all."""
        return self.TABLES


def class_of(kind: Registry, name: str, parent: type[T], context: Any) -> type[T]:
    """Find the class of the settings of a registered name, or of a plugin that the values declare.

    Plugins are taken from the plain values, because they are needed before all values are validated.

    Args:
        kind: Registry of the name.
        name: Registered name.
        parent: Class that the result must be a subclass of.
        context: Pydantic's context, with the plain ``plugins``.

    Raises:
        ValueError: If there is no such class. Pydantic turns it into a mistake of the configuration.
    """
    declared = (context or {}).get("plugins")
    plugins = declared.get(f"{kind.kind}s") if isinstance(declared, Mapping) else None
    try:
        settings = kind.get(name, plugins if isinstance(plugins, Mapping) else {})
    except ImportError as error:
        raise ValueError(f"{kind.kind} {name!r} cannot be imported: {error}") from error
    if not (isinstance(settings, type) and issubclass(settings, parent)):
        raise ValueError(f"{kind.kind} {name!r} is no subclass of {parent.__module__}.{parent.__name__}")
    if name not in kind.builtin and (problem := _fact_problem(settings, parent)):
        raise ValueError(f"{kind.kind} {name!r}: {problem}")
    return settings


def _fact_problem(settings: type[T], parent: type[T]) -> str | None:
    """Say which fact a class of settings from outside states wrongly, or return None.

    Args:
        settings: The class.
        parent: Class that declares the facts, each as a ``ClassVar``.
    """
    for fact, declared in get_type_hints(parent, include_extras=True).items():
        if fact not in parent.__annotations__ or get_origin(declared) is not ClassVar:
            continue
        where = f"{settings.__name__}.{fact}"
        if fact in settings.model_fields:
            return f"{where} is a fact of the class and no setting; annotate it as {fact}: ClassVar"
        if not hasattr(settings, fact):
            return f"{where} is missing; state it on the class"
        value = getattr(settings, fact)
        try:
            TypeAdapter(get_args(declared)[0]).validate_python(value)
        except ValidationError as error:
            return f"{where} = {value!r}: {error.errors()[0]['msg'].removeprefix('Input ')}"
        if Target in get_args(declared) and (problem := absent(value)):
            return f"{where} = {value!r}: {problem}"
    return None
