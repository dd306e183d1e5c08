"""A scripted booking agent that behaves as untidily as real ones: repeated searches, attempts that fail, optional arguments, rare values,
durations with a long tail, two languages, several wordings, amounts in two notations."""

from __future__ import annotations

import random
import uuid

from proctor.model.evidence import Evidence, Json, ToolCall, Usage

CITIES = ("Oslo", "Bergen", "Graz", "Wien", "Linz", "Bern", "Basel", "Zug", "Rome", "Pisa")
NAMES = ("Ada", "Bo", "Cid", "Dora", "Eli", "Fay", "Gus", "Hal")


def make_run(source: random.Random) -> Evidence:
    """Return one run."""
    kind = source.choices(["book", "book and mail", "cancel", "question", "weather"], [40, 10, 20, 15, 15])[0]
    name, reference = source.choice(NAMES), f"BK-{source.randint(1000, 99999)}"
    city = source.choices(CITIES, [20, 18, 15, 12, 10, 8, 6, 4, 3, 1])[0]
    tokens = int(source.lognormvariate(6.5, 0.5))
    if kind.startswith("book"):
        message, answer, calls = _book(source, name, city, reference, mails=kind != "book")
    elif kind == "cancel":
        message, answer, calls = _cancel(source, name, reference)
    elif kind == "question":
        message, answer = source.choice(
            [("When is check-in?", "Check-in is at 3 pm."), ("Breakfast?", "It costs 12 EUR."), ("Do you allow dogs?", "Dogs are welcome")]
        )
        calls = []
    else:
        degrees = source.randint(-5, 30)
        message, answer = f"How is the weather in {city}?", f"It is {degrees} °C in {city}{source.choice(['.', '!', ' 🌧'])}"
        calls = [ToolCall(name="get_weather", arguments={"city": city, "units": "metric"}, result={"temp": degrees})]
    usage = Usage(input_tokens=tokens, output_tokens=tokens // 4)
    return Evidence(input=message, text=answer, tool_calls=tuple(calls), duration_ms=source.lognormvariate(7, 0.7), usage=usage)


def _book(source: random.Random, name: str, city: str, reference: str, *, mails: bool) -> tuple[str, str, list[ToolCall]]:
    day = f"2026-{source.randint(1, 12):02}-{source.randint(1, 28):02}"
    nights = source.choices([1, 2, 3, 4, 5, 7, 10, 14], [20, 30, 20, 10, 8, 6, 4, 2])[0]
    price, hotel = round(source.uniform(60, 900), source.choice([0, 2, 2])), source.randint(10, 9999)
    calls: list[ToolCall] = []
    for _ in range(source.choices([1, 2, 3], [70, 20, 10])[0]):
        limit: dict[str, Json] = {"max_price": source.choice([100, 150, 200, 500])} if source.random() < 0.3 else {}
        found = [{"id": hotel, "price": price}, {"id": hotel + 1, "price": price + 10}]
        calls.append(ToolCall(name="search_hotels", arguments={"city": city, "from": day, **limit}, result={"hotels": found}))
    given: dict[str, Json] = {"hotel_id": hotel, "guest": name, "nights": nights, "from": day}
    if source.random() < 0.05:
        calls.append(ToolCall(name="book_room", arguments=given, error="timeout"))
    given["request_id"] = str(uuid.UUID(int=source.getrandbits(128)))
    if source.random() < 0.1:
        given["breakfast"] = source.random() < 0.5
    calls.append(ToolCall(name="book_room", arguments=given, result={"ref": reference, "total": price * nights}))
    if mails:
        subject = source.choice(["Your booking", "Booking confirmed"])
        calls.append(ToolCall(name="send_mail", arguments={"to": f"{name.lower()}@example.org", "subject": subject}, result={"ok": True}))
    total = f"{price * nights:.2f}" if source.random() < 0.7 else f"{price * nights:,.2f}"
    answers = (
        f"Done! Your room in {city} is booked from {day}, reference {reference}. Total: {total} EUR.",
        f"I booked it for you, {name}: reference {reference} 🎉",
        f"Gebucht. Ihre Referenz ist {reference}.",
    )
    messages = (
        f"I need a room in {city} for {nights} nights from {day}, my name is {name}",
        f"Hallo, ich bin {name} und brauche ab {day} für {nights} Nächte ein Zimmer in {city}",
    )
    return source.choice(messages), source.choice(answers), calls


def _cancel(source: random.Random, name: str, reference: str) -> tuple[str, str, list[ToolCall]]:
    calls: list[ToolCall] = []
    if source.random() < 0.6:
        calls.append(ToolCall(name="get_booking", arguments={"ref": reference}, result={"ref": reference, "guest": name}))
    reason = source.choices(["customer request", "duplicate", "illness"], [90, 8, 2])[0]
    calls.append(ToolCall(name="cancel_booking", arguments={"ref": reference, "reason": reason}, result={"ok": True}))
    answers = (f"Your booking {reference} is cancelled.", f"I have cancelled {reference}. Anything else?", f"{reference} ist storniert.")
    return source.choice([f"Cancel {reference}", f"Bitte {reference} stornieren"]), source.choice(answers), calls
