"""The records API: rows, filters, schemas and rules."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.errors import SpecError
from tests.simulators.workplace import BASE, Workplace, read, refusal

SEED: dict[str, Any] = {
    "orders": {
        "schema": {"type": "object", "required": ["item"], "properties": {"quantity": {"type": "integer", "minimum": 1}}},
        "unique": ["number"],
        "rows": [
            {"id": 7, "item": "lamp", "quantity": 2, "status": "open", "number": "A1", "to": {"city": "Ulm"}},
            {"id": 8, "item": "desk", "quantity": 10, "status": "shipped", "number": "A2", "to": {"city": "Bonn"}},
            {"id": 9, "item": "Lampshade", "status": "open", "tags": ["gift", "fragile"]},
        ],
        "rules": [
            {"on": "create", "set": {"status": "open"}},
            {"on": "update", "was": {"status": "shipped"}, "refuse": "a shipped order cannot be changed"},
            {"on": "update", "when": {"status": "free"}, "refuse": "nothing is free"},
            {"on": "delete", "refuse": "orders are never deleted"},
        ],
    },
    "prices": {"read_only": True, "rows": [{"id": "lamp", "price": 9.5}]},
    "notes": [],
}


@pytest.fixture
def shop() -> Workplace:
    return Workplace("records", SEED)


def test_a_row_is_added_read_changed_replaced_and_removed(shop: Workplace) -> None:
    made = shop.ask("POST", "/notes", {"text": "call back"})
    assert made.status == 201
    assert read(made) == {"text": "call back", "id": "new-1"}
    assert made.headers["location"] == f"{BASE}/notes/new-1"
    assert read(shop.ask("PATCH", "/notes/new-1", {"done": True, "text": None})) == {"id": "new-1", "done": True}
    assert read(shop.ask("PUT", "/notes/new-1", {"text": "done"})) == {"id": "new-1", "text": "done"}
    assert shop.ask("PUT", "/notes/mine", {}).status == 201
    assert shop.ask("DELETE", "/notes/new-1").status == 204
    assert shop.state().records == {
        "orders": SEED["orders"]["rows"],
        "prices": SEED["prices"]["rows"],
        "notes": [{"id": "mine"}],
    }


@pytest.mark.parametrize(
    ("when", "row", "status"),
    [
        ({"quantity": {"$gt": 5}}, {"item": "lamp", "quantity": 6}, 409),
        ({"quantity": {"$gt": 5}}, {"item": "lamp", "quantity": 5}, 201),
        ({"quantity": {"matcher": "gte", "value": 5}}, {"item": "lamp", "quantity": 5}, 409),
        ({"approved_by": None}, {"item": "lamp"}, 409),
        ({"approved_by": None}, {"item": "lamp", "approved_by": None}, 409),
        ({"approved_by": None}, {"item": "lamp", "approved_by": "eve"}, 201),
        ({"urgent": True}, {"urgent": 1}, 201),
    ],
)
def test_rules_compare_as_checks_do(when: dict[str, Any], row: dict[str, Any], status: int) -> None:
    shop = Workplace("records", {"orders": {"rules": [{"on": "create", "when": when, "refuse": "no"}]}})
    assert shop.ask("POST", "/orders", row).status == status


def test_an_invalid_matcher_of_a_rule_is_refused_at_its_place() -> None:
    with pytest.raises(SpecError) as refused:
        Workplace("records", {"orders": {"rules": [{"when": {"quantity": {"$gtt": 5}}, "refuse": "no"}]}})
    assert refused.value.field == "records.seed.orders.rules.0.when.quantity.$gtt"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", [7, 8, 9]),
        ("status=open", [7, 9]),
        ("status=open&status=shipped", [7, 8, 9]),
        ("status__ne=open", [8]),
        ("quantity__gte=10", [8]),
        ("quantity=2", [7]),
        ("quantity=2.0", [7]),
        ("quantity__lt=10", [7]),
        ("quantity__gt=2&quantity__lte=10", [8]),
        ("item__contains=LAMP", [7, 9]),
        ("item__in=desk,lamp", [7, 8]),
        ("to.city=Ulm", [7]),
        ("tags=gift", [9]),
        ("number__exists=false", [9]),
        ("_sort=-quantity", [8, 7, 9]),
        ("_sort=status,-id", [9, 7, 8]),
        ("_limit=1&_offset=1", [8]),
        ("_limit=0", []),
    ],
)
def test_filters(shop: Workplace, query: str, found: list[int]) -> None:
    assert [row["id"] for row in shop.get(f"/orders?{query}")["rows"]] == found


def test_the_total_counts_what_fits_beyond_the_limit(shop: Workplace) -> None:
    assert shop.get("/orders?status=open&_limit=1")["total"] == 2


@pytest.mark.parametrize(
    ("method", "target", "body", "expected"),
    [
        ("GET", "/order", None, (404, "not_found")),
        ("GET", "/orders/1", None, (404, "not_found")),
        ("GET", "/orders/7/x", None, (404, "not_found")),
        ("GET", "/orders?_limt=1", None, (400, "unknown_parameter")),
        ("GET", "/orders?_limit=x", None, (400, "wrong_parameter")),
        ("GET", "/orders?quantity__ge=1", None, (400, "unknown_parameter")),
        ("PUT", "/orders", {}, (405, "method_not_allowed")),
        ("POST", "/orders/7", {}, (405, "method_not_allowed")),
        ("POST", "/", {}, (405, "method_not_allowed")),
        ("POST", "/orders", b"{", (400, "bad_json")),
        ("POST", "/orders", [], (422, "wrong_row")),
        ("POST", "/orders", {"quantity": 1}, (422, "wrong_row")),
        ("POST", "/orders", {"item": "a", "quantity": 0}, (422, "wrong_row")),
        ("POST", "/orders", {"item": "a", "id": 7}, (409, "duplicate_id")),
        ("POST", "/orders", {"item": "a", "id": None}, (422, "wrong_id")),
        ("POST", "/orders", {"item": "a", "number": "A1"}, (409, "not_unique")),
        ("PATCH", "/orders/7", {"number": "A2"}, (409, "not_unique")),
        ("PATCH", "/orders/7", {"id": 70}, (422, "wrong_id")),
        ("PATCH", "/orders/8", {"quantity": 1}, (409, "refused_by_rule")),
        ("PATCH", "/orders/7", {"status": "free"}, (409, "refused_by_rule")),
        ("DELETE", "/orders/7", None, (409, "refused_by_rule")),
        ("DELETE", "/prices/lamp", None, (409, "read_only")),
    ],
)
def test_refused_requests_change_nothing(shop: Workplace, method: str, target: str, body: Any, expected: tuple[int, str]) -> None:
    assert refusal(shop.ask(method, target, body)) == expected
    assert shop.state().changes == ()


def test_rules_set_members(shop: Workplace) -> None:
    assert read(shop.ask("POST", "/orders", {"item": "chair", "status": "shipped"}))["status"] == "open"


def test_collections_are_listed(shop: Workplace) -> None:
    assert shop.get("/")["collections"] == [
        {"name": "orders", "rows": 3},
        {"name": "prices", "rows": 1},
        {"name": "notes", "rows": 0},
    ]


@pytest.mark.parametrize(("path", "id"), [("None", None), ("True", True), ("1.0", 1.0)])
def test_a_put_row_needs_a_valid_id(shop: Workplace, path: str, id: Any) -> None:
    assert refusal(shop.ask("PUT", f"/notes/{path}", {"id": id})) == (422, "wrong_id")
