"""What does map-reduce cost, predicted and measured? (BriefContext, equations 4 and 5.)"""

from __future__ import annotations

from epicrisis.evaluation.analysis.plot_spec import PlotSpec
from epicrisis.evaluation.experiments import token_costs
from epicrisis.evaluation.experiments.experiment import Experiment, Grid
from epicrisis.evaluation.experiments.integration import K, build_retrieved_cases
from epicrisis.evaluation.experiments.positions import PUBMEDQA
from epicrisis.evaluation.experiments.token_costs import BRIEF_CONTEXT, CHECKED, CLOSED_BOOK, RAG

INPUT_PLOT = PlotSpec("Input tokens a question", "points", ("input",), ("arm",), ("arm",))
EXPERIMENT = Experiment(
    "cost",
    "What does map-reduce cost, predicted and measured? (BriefContext, equations 4 and 5)",
    build_retrieved_cases,
    token_costs.tables,
    sets=(PUBMEDQA,),
    grid=Grid((RAG, BRIEF_CONTEXT, CHECKED, CLOSED_BOOK), (K,)),
    published=("cost",),
    plots=(
        (INPUT_PLOT,),
        (
            PlotSpec(
                "Input tokens, predicted and measured", "points", ("input",), ("what",), measured_prefix="measured"
            ),
        ),
    ),
    places_documents=False,
)
