"""`/api/annotations/export`: labels as a file. The other operations are declared in `service/labels`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response

from proctor.rest.route_parts import TheCaller, TheHub, make_router
from proctor.service.labels import agreement

router = make_router("annotations")
_LINES: dict[int | str, dict[str, Any]] = {
    200: {"description": "Lines of JSON.", "content": {"application/x-ndjson": {"schema": {"type": "string"}}}}
}


@router.get("/api/annotations/export", response_class=Response, responses=_LINES)
async def export_labels(hub: TheHub, caller: TheCaller, project_id: Annotated[str, Query()]) -> Response:
    """Export the labels of a project as the file that `proctor judge calibrate` reads."""
    found = await agreement.read_agreement(hub, caller, project_id, figures=False)
    headers = {"content-disposition": 'attachment; filename="labels.jsonl"'}
    return Response(agreement.write_labels(found), media_type="application/x-ndjson", headers=headers)
