"""A statement on paper: its page shows the plain values, all of them and nothing else, and one statement's words."""

import datetime
import json
import math
from html.parser import HTMLParser

import pytest

from leakbound.accounting.risk import bound_text, membership_bound, naming_bound
from leakbound.accounting.sheet import Release, StatedData, sheet, sheet_page
from leakbound.accounting.statement import Statement, state

DAY = datetime.date(2026, 3, 1)
MARKUP = '<script>alert(1)</script> & "others" {{ 7 * 7 }}'
TOLD = state("the noisy copies", added=0.5, labels=0.25, secure=True, uncovered=["learning rate"])
SEEDED = state("the weights", added=0.5, labels=0.25, secure=False)


class Text(HTMLParser):
    """Rows of tables and items of lists by the identifier of what holds them, and the text of the page."""

    def __init__(self, page: str):
        super().__init__()
        self.parts, self.text, self.tags, self.place, self.cell = {}, [], [], "", None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.place = dict(attributes).get("id", self.place)
        if tag in ("tr", "li"):
            self.parts.setdefault(self.place, []).append([])
        if tag in ("th", "td", "li", "p"):
            self.cell = []

    def handle_data(self, data):
        self.text.append(data)
        if self.cell is not None:
            self.cell.append(data)

    def handle_endtag(self, tag):
        if tag in ("th", "td", "li") and self.place:
            self.parts[self.place][-1].append(" ".join("".join(self.cell or []).split()))
        self.cell = None if tag in ("th", "td", "li", "p") else self.cell


def made(bounds=None, name="patients.csv", **changed):
    data = StatedData(name, **{"records": 900, "digest": "ab12", "digest_of": "the file", **changed})
    sees = (("Whoever has the copies", "noisy copies"), ("You alone", "the records"))
    release = Release("noisy copies of the records", "copies", "cd34", sees, "at most 1 nat by one copy")
    return sheet(bounds or {"copies": TOLD}, data, release, version="1.2", date=DAY, assumptions=["owners are unknown"])


def test_the_page_holds_all_plain_values_and_the_words_of_the_statement():
    facts = made()
    page = Text(sheet_page(facts))
    text = " ".join(" ".join(page.text).split())
    assert facts["bounds"][0]["sentence"] == TOLD.sentence
    assert TOLD.sentence in text
    assert page.parts["data"] == [
        ["Data", "patients.csv: 900 records"],
        ["Digest of the data", "ab12 (SHA-256 of the file)"],
        ["Release", "noisy copies of the records, copies"],
        ["Digest of the release", "cd34"],
        ["Limit asked for", "at most 1 nat by one copy"],
    ]
    assert page.parts["scope"] == [
        ["Holds", facts["adjacency"]],
        ["Noise", facts["noise"]],
        ["Labels", "their nats are part of the bound"],
        ["Not covered", "learning rate"],
    ]
    assert page.parts["sees"] == [["Whoever has the copies", "noisy copies"], ["You alone", "the records"]]
    assert [item for (item,) in page.parts["assumptions"]] == facts["assumptions"]
    assert facts["assumptions"][-1] == "owners are unknown"
    assert "2026-03-01, made by leakbound 1.2" in text
    assert [row[0] for row in page.parts["signatures"][1:]] == ["Answers for the data", "Privacy officer"]
    assert all(cell == "" for row in page.parts["signatures"][1:] for cell in row[1:])  # to be signed by people
    assert [row[0] for row in page.parts["decision"]] == [
        "Purpose and recipient",
        "Acceptable are at most",
        "Reason, and until when",
    ]


def test_risks_are_those_of_the_nats_with_labels_and_rounded_up():
    facts = made()
    assert facts["nats"] == 0.75
    advantage, area = membership_bound(0.75)
    most = [naming_bound(0.75, 900), advantage, area]
    assert [row["at_most"] for row in facts["risks"]] == most
    assert [row["guessing"] for row in facts["risks"]] == [1 / 900, 0.0, 0.5]
    shown = [row[1] for row in Text(sheet_page(facts)).parts["risks"][1:]]
    assert shown == [f"{bound_text(100 * share)} %" for share in most]
    assert all(float(text[:-2]) >= 100 * share for text, share in zip(shown, most, strict=True))


def test_candidates_are_no_more_than_there_are_owners():
    """Among fewer candidates the right one is named more easily: 30 records in threes are of at least ten people."""
    owned = state("the noisy copies", added=0.5, labels="none", secure=True, unit="owner", group=3)
    (first, *_), (known, *_) = (made({"copies": owned}, records=30, owners=people)["risks"] for people in (None, 12))
    assert (first["guessing"], known["guessing"]) == (1 / 10, 1 / 12)
    assert first["at_most"] == naming_bound(0.5, 10) > known["at_most"]
    assert "the right owner" in first["risk"]


@pytest.mark.parametrize(
    "told",
    [
        SEEDED,
        state("the weights", labels="uncounted", secure=True, why_not="clipping adds no noise"),
        Statement("it", "record", 1, math.inf, 0.0, "covered", every=True, secure=True, epsilon=1.0, delta=1e-5),
    ],
    ids=["seeded", "none", "epsilon alone"],
)
def test_without_nats_that_bound_the_release_no_risk_is_limited(told):
    facts = made({"weights": told})
    assert (facts["risks"], facts["nats"]) == ([], None)
    text = " ".join(Text(sheet_page(facts)).text)
    assert "No number limits what an attacker finds out" in text
    assert told.sentence in text
    json.dumps(facts, allow_nan=False)


def test_labels_that_are_not_counted_are_left_out_in_so_many_words():
    facts = made({"copies": state("the copies", added=0.5, labels="uncounted", secure=True)})
    assert all(row["risk"].endswith("labels left out") for row in facts["risks"])
    assert facts["labels"] == "released, and not part of the bound"


def test_of_several_releases_each_has_its_short_form_and_none_is_a_bound_of_seeded_noise():
    bounds = {f"natural {level}": SEEDED for level in range(9)} | {
        "none": state("it", labels="none", secure=True, why_not="no noise")
    }
    page = Text(sheet_page(made(bounds)))
    assert page.parts["bounds"] == [[name, told.short] for name, told in bounds.items()]


def test_what_people_name_is_text_and_never_markup_or_a_template():
    facts = made(name=MARKUP)
    page = Text(sheet_page(facts))
    assert page.parts["data"][0] == ["Data", f"{' '.join(MARKUP.split())}: 900 records"]
    assert "script" not in page.tags
    assert not {"src", "href"} & {name for name in ("src", "href") if f" {name}=" in sheet_page(facts)}


def test_equal_values_give_equal_bytes_and_values_from_json_the_same_page():
    assert sheet_page(made()) == sheet_page(made()) == sheet_page(json.loads(json.dumps(made())))


def test_a_digest_that_is_not_known_is_left_to_be_filled_in():
    rows = dict(Text(sheet_page(made(digest=None))).parts["data"])
    assert rows["Digest of the data"].endswith("(to be filled in)")


def test_a_sheet_without_a_bound_is_refused():
    with pytest.raises(ValueError, match="at least one statement"):
        sheet({}, StatedData("a", 1), Release("b"), version="1", date=DAY)
