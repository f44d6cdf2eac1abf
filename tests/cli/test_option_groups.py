"""Groups of options: a command with a group reads its words as one that lists the options one by one."""

from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
import typer
from typer.testing import CliRunner

from leakbound.commands.command_line import every_command
from leakbound.commands.option_groups import Offered, with_single_options
from leakbound.commands.record_options import ReadingOptions


@dataclass(frozen=True)
class Form:
    """Options of a form."""

    side: Annotated[int, typer.Option(min=2, help="Pixels of a side.")] = 8
    span: Annotated[tuple[int, int] | None, typer.Option("--range", help="Levels.")] = None
    exclude: Annotated[list[str] | None, typer.Option(help="Columns.")] = None


def _asked(command: Any, *words: str) -> tuple[int, str]:
    app = typer.Typer(rich_markup_mode=None)
    app.command()(command)
    result = CliRunner().invoke(app, words)
    return result.exit_code, result.output


def grouped(
    path: Annotated[Path, typer.Argument(help="File.")],
    form: Form,
    *,
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
    few: Annotated[bool, typer.Option("--few", help="Few.")] = False,
) -> None:
    """Do something."""
    typer.echo((path.name, form.side, form.span, form.exclude, seed, few))


def single(
    path: Annotated[Path, typer.Argument(help="File.")],
    side: Annotated[int, typer.Option(min=2, help="Pixels of a side.")] = 8,
    span: Annotated[tuple[int, int] | None, typer.Option("--range", help="Levels.")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="Columns.")] = None,
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
    few: Annotated[bool, typer.Option("--few", help="Few.")] = False,
) -> None:
    """Do something."""
    typer.echo((path.name, side, span, exclude, seed, few))


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "file",
        "file --side 4 --range 1 5 --exclude a --exclude b --seed 3 --few",
        "--few file",
        "",
        "file --side 1",
        "file --range 1",
        "file other",
        "file --sides 3",
    ],
)
def test_a_command_with_a_group_answers_as_one_that_lists_its_options(words):
    given = words.split()
    expected = tuple(str(part).replace("single", "grouped") for part in _asked(single, *given))
    assert tuple(map(str, _asked(with_single_options(grouped), *given))) == expected


def test_a_command_offers_some_fields_in_its_own_order():
    def command(form: Annotated[Form, Offered(("exclude", "side"))]) -> None:
        """Do something."""
        typer.echo(form)

    code, text = _asked(with_single_options(command), "--help")
    assert code == 0
    assert text.index("--exclude") < text.index("--side")
    assert "--range" not in text
    _, text = _asked(with_single_options(command), "--side", "3", "--exclude", "a")
    assert text.strip() == str(Form(side=3, exclude=["a"]))


def test_two_options_of_one_name_are_refused():
    def command(form: Form, *, side: int = 3) -> None:
        """Do something."""

    with pytest.raises(TypeError, match="command: two options have one name: exclude, side, side, span"):
        with_single_options(command)


def _options(command: Any) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return default and settings of each option of a command, by its parameter."""
    parameters = signature(with_single_options(command)).parameters.values()
    return {each.name: (each.default, vars(get_args(each.annotation)[1])) for each in parameters}


def _reading(options: ReadingOptions) -> None:
    """Take all options of reading, and no others."""


@pytest.mark.parametrize("name", ["protect", "calibrate", "risk", "audit", "compare"])
def test_commands_on_own_records_offer_the_same_options_of_reading(name):
    place: Any = every_command()[name]
    offered = _options(place.function())
    own = {"compare": {"missing", "standardize"}}.get(name, set())  # the workflow has no public records
    shared = {option: of for option, of in _options(_reading).items() if option in {*offered} - own}
    assert len(shared) >= 7
    assert {option: offered[option] for option in shared} == shared
