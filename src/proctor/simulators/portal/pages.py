"""The pages of a portal: plain HTML that works without scripts, with a label for everything, for people, browsers and screen readers.

Everything that anybody wrote is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable

from proctor.model.evidence import Json
from proctor.simulators.exchange import Response
from proctor.simulators.portal.wizards import Field, Wizard

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:0;color:#1b1b1b;background:#fff}"
    "header{background:#123a5e;color:#fff;padding:.75rem 1.5rem}header a{color:#fff;margin-right:1rem}"
    "main{max-width:46rem;margin:0 auto;padding:1.5rem}label{display:block;font-weight:600;margin-top:1rem}"
    "input,select,textarea{font:inherit;padding:.4rem;width:100%;box-sizing:border-box;border:1px solid #5c5c5c}"
    "button{font:inherit;margin-top:1.25rem;padding:.5rem 1.25rem;background:#123a5e;color:#fff;border:0}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.4rem;border-bottom:1px solid #bbb;overflow-wrap:anywhere}"
    ".problem{color:#8c1010}.hint{color:#444;display:block}dt{font-weight:600}header form{display:inline}"
)

_POLICY = (
    f"default-src 'none'; style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""The pages may share a host with others: they run no scripts, and may use their own styles."""


def escape(value: Json) -> str:
    """Return text that ends no tag and no attribute."""
    return html.escape("" if value is None else str(value), quote=True)


def answer_page(title: str, body: str, base: str, *, payer: str, is_inside: bool = True, status: int = 200) -> Response:
    """Return a whole page."""
    links = (
        f'<nav aria-label="Portal"><a href="{escape(base)}/">Home</a><a href="{escape(base)}/requests">Requests</a>'
        f'<a href="{escape(base)}/patients">Patients</a><form method="post" action="{escape(base)}/logout">'
        "<button>Sign out</button></form></nav>"
    )
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)} - {escape(payer)}</title><style>{_STYLE}</style></head>"
        f"<body><header><strong>{escape(payer)} provider portal</strong>{links if is_inside else ''}</header>"
        f"<main><h1>{escape(title)}</h1>{body}</main></body></html>"
    )
    headers = {"content-type": "text/html; charset=utf-8", "cache-control": "no-store", "content-security-policy": _POLICY}
    # Without any referrer browsers send the forms of these pages with `Origin: null`, and the service refuses that.
    headers["referrer-policy"] = "same-origin"
    return Response(status=status, body=text.encode("utf-8", "replace"), headers=headers)


def redirect(address: str, **headers: str) -> Response:
    """Return the way to another page."""
    return Response(status=303, headers={"location": address, **{name.replace("_", "-"): value for name, value in headers.items()}})


def write_problems(problems: Iterable[str]) -> str:
    """Return the problems as an alert for screen readers."""
    items = "".join(f"<li>{escape(problem)}</li>" for problem in problems)
    return f'<div role="alert" class="problem"><p>Please correct the following:</p><ul>{items}</ul></div>' if items else ""


def write_field(field: Field, value: str, problem: str) -> str:
    """Return a field with its label, its hint, and what is wrong with it."""
    name = escape(field.name)
    described = [f"{name}-hint"] * bool(field.hint) + [f"{name}-problem"] * bool(problem)
    more = f' aria-describedby="{" ".join(described)}"' if described else ""
    more += ' aria-invalid="true"' if problem else ""
    more += " required" if field.required else ""
    if field.choices:
        shown = "".join(
            f'<option value="{escape(word)}"{" selected" if word == value else ""}>{escape(text)}</option>' for word, text in field.choices
        )
        control = f'<select id="{name}" name="{name}"{more}>{shown}</select>'
    elif field.is_long:
        control = f'<textarea id="{name}" name="{name}" rows="5"{more}>{escape(value)}</textarea>'
    else:
        control = f'<input id="{name}" name="{name}" value="{escape(value)}"{more}>'
    hint = f'<span class="hint" id="{name}-hint">{escape(field.hint)}</span>' if field.hint else ""
    problem_line = f'<span class="problem" id="{name}-problem">{escape(problem)}</span>' if problem else ""
    optional = "" if field.required else " (optional)"
    return f'<label for="{name}">{escape(field.label)}{optional}</label>{hint}{control}{problem_line}'


def write_login(base: str, problem: str) -> str:
    """Return the sign-in form."""
    return (
        f'{write_problems([problem] if problem else [])}<form method="post" action="{escape(base)}/login">'
        '<label for="username">User name</label><input id="username" name="username" autocomplete="username" required>'
        '<label for="password">Password</label>'
        '<input id="password" name="password" type="password" autocomplete="current-password" required><button>Sign in</button></form>'
    )


def write_step(wizard: Wizard, index: int, address: str, answers: dict[str, str], problems: dict[str, str]) -> str:
    """Return one step of a wizard."""
    step = wizard.steps[index]
    fields = "".join(write_field(field, answers.get(field.name, ""), problems.get(field.name, "")) for field in step.fields)
    back = f'<p><a href="{escape(address)}/{index}">Back</a></p>' if index else ""
    return (
        f"<p>Step {index + 1} of {len(wizard.steps) + 1}: {escape(step.title)}</p>{write_problems(problems.values())}"
        f'<form method="post" action="{escape(address)}/{index + 1}" novalidate>{fields}<button>Continue</button></form>{back}'
    )


def write_review(wizard: Wizard, address: str, answers: dict[str, str]) -> str:
    """Return the last step: everything again, and the button that submits it."""
    count = len(wizard.steps)
    listed = write_list((field.label, answers.get(field.name) or "(none)") for field in wizard.list_fields())
    return (
        f"<p>Step {count + 1} of {count + 1}: Review</p>{listed}"
        f'<form method="post" action="{escape(address)}/submit"><button>Submit request</button></form>'
        f'<p><a href="{escape(address)}/{count}">Back</a></p>'
    )


def write_list(pairs: Iterable[tuple[str, Json]]) -> str:
    """Return names and values."""
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs) + "</dl>"


def write_search(address: str, label: str, value: str) -> str:
    """Return a form that looks for something."""
    return (
        f'<form method="get" action="{escape(address)}" role="search"><label for="q">{escape(label)}</label>'
        f'<input id="q" name="q" value="{escape(value)}"><button>Search</button></form>'
    )


def write_table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]], empty: str) -> str:
    """Return a table of cells that are HTML already, or a sentence where there are none."""
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if body else f"<p>{escape(empty)}</p>"
