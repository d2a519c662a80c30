"""The table of docs/models.md, from `recommendations.toml`. `python -m tests.models.models_page` writes it."""

from __future__ import annotations

from pathlib import Path

from epicrisis.models.recommendations import load_recommendations

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
BEGIN, END = "<!-- models: written by python -m tests.models.models_page -->\n", "<!-- end of models -->\n"


def render_table() -> str:
    """Return the models and their sources in Markdown."""
    recommendations = load_recommendations()
    lines = [
        "| needs | model, quantisation | for | file | licence | measured here | published, % |",
        "|---|---|---|---|---|---|---|",
    ]
    for model in recommendations.models:
        # Commas: `[a] [b]` would be a link of Markdown.
        marks = ", ".join(f"[{mark}]" for mark in model.sources)
        published: list[str] = []
        for scores in (model.published, model.also_published):
            if scores is not None:
                published.append(f"{str(scores).replace(' %', '')} [{scores.source}]")
        cells = (
            f"{model.needs_gb:g} GB",
            f"{model.name}, {model.quantisation}",
            ", ".join(model.uses),
            f"{model.file_gb:g} GB {marks}".strip(),
            model.licence,
            model.measured or "-",
            "; ".join(published) or "-",
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    for mark, source in recommendations.sources.items():
        title, _, url = source.rpartition("https://")
        link = f"<https://{url}>" if url and title != source else source
        lines.append(f"* [{mark}] {title}{link}" if url != source else f"* [{mark}] {source}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the table into the page."""
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}{render_table()}{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
