"""A case of the shop with two versions, decided on two traces of its agent."""

from __future__ import annotations

from proctor.service.access.callers import LOCAL
from proctor.service.hub import Hub
from proctor.store.sql.compressed_json import pack
from proctor.store.sql.tables import case_versions, cases, results, traces

FIRST = """\
proctor: 1
name: manners
cases:
  - id: greeting
    input: hello
    expect:
      - response_contains: hello
"""
SECOND = (
    FIRST
    + """\
  - id: opening-hours
    input: When are you open?
    expect:
      - response_contains: nine
"""
)
BROKEN = FIRST.replace("response_contains", "response_containz")


async def seed_cases(hub: Hub) -> None:
    ours = {"organization_id": LOCAL.organization_id, "project_id": "proj_home", "agent_id": "agent_home_1"}
    async with hub.database.writing() as connection:
        at = {"created_at": "2026-11-14T09:00:00.000Z", "updated_at": "2026-11-15T09:00:00.000Z"}
        case = {"id": "case_manners", "name": "Greets politely", "dialect": "native", "document": SECOND, "version": 2, **ours, **at}
        await connection.execute(cases.insert().values(**case, when_matches={"tags": ["vip"]}))
        for version, document in ((1, FIRST), (2, SECOND)):
            fields = {"case_id": "case_manners", "version": version, "dialect": "native", "document": document}
            await connection.execute(case_versions.insert().values(**fields, created_at=f"2026-11-1{version + 3}T09:00:00.000Z"))
        for number, (text, outcome) in enumerate((("hello, I am here", "pass"), ("no idea", "fail")), 1):
            at = {"created_at": f"2026-11-1{number + 3}T10:00:00.000Z", "updated_at": f"2026-11-1{number + 3}T10:00:00.000Z"}
            trace = {"id": f"trc_shop_{number}", "external_id": f"shop-{number}", "format": "mibo", "status": "evaluated"}
            trace |= {"input_text": "I was charged twice", "outcome": outcome, "body": pack({"data": {"output": text}})}
            await connection.execute(traces.insert().values(**trace, **ours, **at))
            result = {"id": f"res_shop_{number}", "trace_id": trace["id"], "case_id": "case_manners", "case_version": number}
            await connection.execute(
                results.insert().values(**result, case_key="greeting", trace_revision=1, outcome=outcome, body=b"", **ours, **at)
            )
