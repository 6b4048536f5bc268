"""What pages are made of: templates, styles and scripts of this room, and plotly's own script."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

import jinja2
from markupsafe import Markup


def asset(name: str) -> str:
    """The text of a file in `templates/`."""
    return resources.files("trainingkit.report").joinpath("templates", name).read_text(encoding="utf-8")


@lru_cache(maxsize=4)
def template(name: str) -> jinja2.Template:
    """A template; everything put into it is escaped, and a name that is not given is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(asset), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    return environment.get_template(name)


@lru_cache(maxsize=1)
def plotly() -> Markup:
    """Plotly's script, to be inlined."""
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs())
