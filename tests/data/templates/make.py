"""Renders the cases of this folder with the Python package jinja2, in the environment that
transformers (5.x) makes for chat templates, and writes cases.jsonl.  Run by hand when a case is
added:  python3 make.py.  The stored file was made by jinja2 3.1.6 on 2026-11-21.

Each file *.txt holds cases, separated by lines "=== name"; an optional line "--- {json}" after it
gives the variables.  The templates are our own.
"""
import datetime
import glob
import json
import os

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = datetime.datetime(2026, 1, 15, 12, 34, 56)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(lineno)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: NOW.strftime(f)
    return env


def render(env, template, variables):
    try:
        return {"expected": env.from_string(template).render(**json.loads(variables))}
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}"}


def cases():
    for path in sorted(glob.glob(os.path.join(HERE, "*.txt"))):
        with open(path, encoding="utf-8", newline="\n") as f:
            text = f.read()
        for part in text.split("\n=== ")[1:]:
            name, _, rest = part.partition("\n")
            variables = "{}"
            if rest.startswith("--- "):
                line, _, rest = rest.partition("\n")
                variables = line[4:]
            stem = os.path.splitext(os.path.basename(path))[0]
            yield f"{stem}: {name}", rest, variables


if __name__ == "__main__":
    env = environment()
    with open(os.path.join(HERE, "cases.jsonl"), "w", encoding="utf-8") as out:
        for name, template, variables in cases():
            line = {"name": name, "template": template, "vars": variables}
            line.update(render(env, template, variables))
            out.write(json.dumps(line, ensure_ascii=False) + "\n")
