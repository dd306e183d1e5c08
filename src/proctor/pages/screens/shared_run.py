"""A run as a link to it shows it: for anybody who has the link, with no way to anything else."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from proctor.model.evidence import Json
from proctor.pages.desk import get_hub
from proctor.pages.pictures import draw_share
from proctor.pages.rendering import render_page
from proctor.service.verification.runs.shares import get_shared_run
from proctor.store.sql.compressed_json import to_json

_LONGEST_EVIDENCE = 5_000
"""Characters of the evidence for one criterion; the whole of it is in the JSON."""
_MOST_TASKS = 50
_MOST_CRITERIA = 200
"""Tasks, and criteria of all of them, on the page; the JSON has them all."""
_HEADERS = {"referrer-policy": "no-referrer", "x-robots-tag": "noindex, nofollow"}
"""The address is the secret: no other site is told of it, and no search engine is to list it."""


async def show_shared_run(request: Request) -> Response:
    """Show a run by a link to it."""
    token = request.path_params["token"]
    run = await get_shared_run(get_hub(request), token)
    tasks, left = run["tasks"][:_MOST_TASKS], _MOST_CRITERIA
    shown: list[dict[str, Json]] = []
    for task in tasks:
        criteria = task.get("criteria", [])[: max(0, left)]
        left -= len(criteria)
        shown.append({**task, "criteria": [{**one, "evidence": _shorten(one.get("evidence"))} for one in criteria]})
    is_cut = len(tasks) < len(run["tasks"]) or any(
        len(one["criteria"]) < len(task.get("criteria", [])) for one, task in zip(shown, tasks, strict=True)
    )
    values = {"run": run, "tasks": shown, "is_cut": is_cut, "json_path": f"/shared/{token}", "draw_share": draw_share}
    return render_page(request, "shared_run.html", values, headers=_HEADERS)


def _shorten(evidence: Json) -> str:
    if not evidence:
        return ""
    return msgspec.json.format(to_json(evidence), indent=2).decode(errors="replace")[:_LONGEST_EVIDENCE]
