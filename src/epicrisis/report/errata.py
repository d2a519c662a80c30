"""What is wrong with figures that the BriefContext papers print: a sentence each, by the name `published` gives it."""

from __future__ import annotations

from collections.abc import Mapping

ERRATA: Mapping[str, str] = {
    "B1": "Equation 1 says when map-reduce is needed the wrong way round: where the rankings agree it is not.",
    "B2": "The threshold is 0.2 in the papers and 0.3 in the code, and n is not stated; at n = 3 both are one test.",
    "B3": "Read by its labels the matrix gives precision 92.6 and recall 50.2; the text's rates need rows = truth.",
    "B4": "35.7 % is the specificity (235 of 658); the share of questions that skip map-reduce is 24.1 %.",
    "B5": "Equation 5 leaves out what the reduce call reads; by the printed tokens input rises by 79 %.",
    "B6": "The RAG row of GPT-3.5 is not the one that MIRAGE published (58.04, 67.40, 90.29).",
    "B7": "The arms differ in more than the strategy: documents read, retrievers, corpora, model version, prompt.",
    "B8": "Averages are over sets of 4,183, 500 and 618 questions, each counting the same.",
    "B9": "The test of significance is not named, the number of repeats is not stated, and all places share the same "
    "105 questions.",
    "B10": "Some percentages cannot arise from so many questions, and averages changed between the two versions.",
    "B11": "48 comparisons are 14 wins, 6 losses and 28 ties: two-sided sign test p = 0.115.",
    "B12": "Resolved rightly counts cases that plain RAG has right as well; win, tie and lose say more.",
    "B13": "The issue leaves open what counts when no key document is retrieved, or when there are several.",
    "B14": "The random sample of 20 % is, in the code, 35 questions a class: 105 of 500, balanced unlike the set.",
    "B15": "Questions of PubMedQA can find the abstract that they were made from, by its title.",
    "B16": "That BriefContext consistently outperforms RAG does not hold in every cell of the papers' own tables.",
}
