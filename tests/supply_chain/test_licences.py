"""The table of licences: every package has one that was looked at, and none that is not allowed."""

from __future__ import annotations

from email.message import Message

import pytest
from supply_chain.licences import PAGE, Review, Rules, find_licences, is_allowed, licence_page, read_rules, stated_licence
from supply_chain.locked import Package, runtime_packages

PACKAGES = runtime_packages()
RULES = Rules(allowed=frozenset({"MIT", "Apache-2.0", "PSF-2.0"}), reviewed={})


def metadata(**fields: str | list[str]) -> Message:
    message = Message()
    for name, value in fields.items():
        for each in [value] if isinstance(value, str) else value:
            message[name.replace("_", "-")] = each
    return message


def package(name: str) -> Package:
    return Package(name=name, version="1.0", needs=(), needed_by=("proctor",), direct=True, files=())


def test_every_package_that_may_come_along_has_a_licence_that_is_allowed() -> None:
    found, complaints = find_licences(PACKAGES, read_rules())
    assert complaints == []
    assert list(found) == [package.name for package in PACKAGES]


def test_the_page_is_up_to_date() -> None:
    rules = read_rules()
    found, _ = find_licences(PACKAGES, rules)
    assert PAGE.read_text(encoding="utf-8") == licence_page(PACKAGES, found, rules), "run `make licences` and commit the page"


def test_the_packages_are_those_of_the_core_and_of_every_extra() -> None:
    needed = {package.name: package.needed_by for package in PACKAGES}
    assert needed["msgspec"] == ("proctor-evals",) and needed["fhirpathpy"] == ("health",) and "providers" in needed["pydantic-ai-slim"]
    assert needed["greenlet"] == ("postgres", "serve"), "an extra of a dependency is followed"
    assert "pywin32" in needed, "also what only other platforms need"
    assert not {"pytest", "ruff", "proctor"} & set(needed)


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("MIT AND PSF-2.0", True),
        ("GPL-3.0-only OR MIT AND PSF-2.0", True),
        ("(GPL-3.0-only OR MIT) AND PSF-2.0", True),
        ("(GPL-3.0-only OR LGPL-2.1) AND PSF-2.0", False),
        ("MIT WITH some-exception", False),
        ("(MIT", False),
        ("MIT)", False),
        ("MIT MIT", False),
        ("MIT/X11", False),
        ("mit", False),
        ("OR", False),
        ("", False),
    ],
)
def test_an_expression_is_allowed_only_where_it_is_understood(expression: str, allowed: bool) -> None:
    assert is_allowed(expression, RULES.allowed) is allowed


@pytest.mark.parametrize(
    ("headers", "licence"),
    [
        (metadata(License_Expression="MIT AND PSF-2.0", License="ignored"), "MIT AND PSF-2.0"),
        (metadata(Classifier="License :: OSI Approved :: MIT License"), "MIT"),
        (metadata(Classifier="License :: OSI Approved :: MIT License", License="MIT"), "MIT"),
        (metadata(Classifier="License :: OSI Approved :: MIT License", License="Apache-2.0"), None),
        (metadata(Classifier="License :: OSI Approved :: BSD License"), None),
        (metadata(Classifier=["License :: OSI Approved :: BSD License", "License :: OSI Approved :: MIT License"]), None),
        (metadata(License="see the file"), None),
        (metadata(), None),
    ],
)
def test_metadata_state_a_licence_only_if_unambiguous(headers: Message, licence: str | None) -> None:
    assert stated_licence(headers) == licence


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        (metadata(License_Expression="GPL-3.0-only"), "GPL-3.0-only is not allowed"),
        (metadata(), "its metadata do not say"),
        (None, "it is not installed here"),
    ],
)
def test_an_unknown_or_non_permissive_licence_is_an_error_until_reviewed(headers: Message | None, words: str) -> None:
    found, (complaint,) = find_licences([package("odd")], RULES, lambda _: headers)
    assert found == {} and complaint.startswith("odd: ") and words in complaint
    licence = "GPL-3.0-only" if headers is not None and headers.get("License-Expression") else "MIT"
    reviewed = Rules(allowed=RULES.allowed, reviewed={"odd": Review(licence=licence, reason="only used in tests")})
    assert find_licences([package("odd")], reviewed, lambda _: headers) == ({"odd": licence}, [])


def test_a_review_that_is_contradicted_or_not_needed_any_more_is_an_error() -> None:
    reviewed = Rules(
        allowed=RULES.allowed, reviewed={"odd": Review(licence="MIT", reason="so it was"), "gone": Review(licence="MIT", reason="-")}
    )
    _, complaints = find_licences([package("odd")], reviewed, lambda _: metadata(License_Expression="GPL-3.0-only"))
    assert [complaint.partition(":")[0] for complaint in complaints] == ["odd", "gone"]
