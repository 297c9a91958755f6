"""The section of the report on public runs of pre-trained models: noise, credit, claims, figures, sources."""

from base64 import b64encode
from pathlib import Path

from markupsafe import Markup

from rftlab.studies.analysis.public import figures
from rftlab.studies.analysis.public.credit import blind_lines, credit_figure, credit_lines, reported_scores
from rftlab.studies.analysis.public.facts import findings
from rftlab.studies.analysis.public.pictures import PICTURES
from rftlab.studies.analysis.public.show import FLOOR, noise_lines, signed_text
from rftlab.studies.analysis.public.sources import SOURCES
from rftlab.studies.analysis.public.store import curves
from rftlab.studies.report.report import draw, template


def public_section(folder: Path) -> Markup:
    """HTML of the section; its figure and the numbers drawn go into the folder."""
    pods = draw(folder, "public-pods", figures.pods(curves()))
    pictures = [
        {"uri": _uri("png", picture.read()), "alt": picture.alt, "caption": picture.caption} for picture in PICTURES
    ]
    credit = draw(folder, "public-credit", credit_figure())
    page = template("public.html.j2").render(
        noise=noise_lines(),
        findings=findings(),
        sources=SOURCES,
        pods=pods,
        credit=credit,
        credit_lines=credit_lines(reported_scores()) + blind_lines(),
        pictures=pictures,
        floor=FLOOR,
        points=f"{sum(source.points for source in SOURCES):,}",
        runs=sum(source.runs for source in SOURCES),
        signed_text=signed_text,
    )
    return Markup(page)


def _uri(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{b64encode(content).decode()}"
