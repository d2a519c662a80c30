"""Errata of published figures by their codes: BriefContext (B), the context-retrieval study (P), the EHR study (E)."""

from __future__ import annotations

from collections.abc import Mapping

ERRATA: Mapping[str, str] = {
    "B1": "Equation 1 says when map-reduce is needed the wrong way round: where the rankings agree it is not.",
    "B2": "The threshold is 0.2 in the papers and 0.3 in the code, and n is not stated; at n = 3 both are one test.",
    "B3": "By its labels the matrix gives precision 92.6 and recall 50.2; the text's rates need rows = truth.",
    "B4": "35.7 % is the specificity (235 of 658); the share of questions that skip map-reduce is 24.1 %.",
    "B5": "Equation 5 leaves out what the reduce call reads; by the printed tokens input rises by 79 %.",
    "B6": "The RAG row of GPT-3.5 is not the one that MIRAGE published (58.04, 67.40, 90.29).",
    "B7": "The arms differ in more than the strategy: documents read, retrievers, corpora, model version, prompt.",
    "B8": "Averages are over sets of 4,183, 500 and 618 questions, each counting the same.",
    "B9": "The test of significance is not named, the number of repeats is not stated, and all places share the same "
    "105 questions.",
    "B10": "Some percentages cannot arise from so many questions, and averages changed between the two versions.",
    "B11": "48 comparisons are 14 wins, 6 losses and 28 ties: two-sided sign test p = 0.115.",
    "B12": "The resolved conflicts include cases that plain RAG answers correctly too; win, tie and lose say more.",
    "B13": "The issue leaves open what counts when no key document is retrieved, or when there are several.",
    "B14": "The random sample of 20 % is, in the code, 35 questions a class: 105 of 500, balanced unlike the set.",
    "B15": "Questions of PubMedQA can find their source abstract by its title.",
    "B16": "That BriefContext consistently outperforms RAG does not hold in every cell of the papers' own tables.",
    "P1": "The released code cannot repeat these figures: its self-consistency stops before it asks, and its "
    "open-ended refinement is gone.",
    "P2": "If a reply names several options, the released code takes the last in display order, not the stated one.",
    "P3": "The released code shuffles with a random state shared by threads, and stops once all permutations are "
    "used: of four options at the 25th vote.",
    "P4": "The released code stores verdicts in the order of success: after a retry they belong to other questions.",
    "P5": "Rows of Tables 1 and 5 stand in Tables 3 and 6 under other settings or heads, Tables 2 and 3 disagree, and "
    "an average of Table 8 is misprinted.",
    "P6": "Context retrieval's gain is that of 20 votes over one next-token prediction, without a control of as many "
    "votes; the code's self-consistency has fixed examples besides.",
    "P7": "The reranker compares question with question, though it was trained on query and article.",
    "P8": "The writer sees the reward, but it never selects: the last round wins, and only the first has examples.",
    "P10": "Multiple-choice accuracy comes from next-token prediction, the others from free text marked by a judge.",
    "P11": "One model, Llama-3.1-70B, writes the databases of open answers and judges the answers.",
    "P12": "Votes, rounds and databases were chosen on the test questions; on MedQA the standard error is 1.4 points.",
    "P13": "MedMCQA is tested on its validation split, which is its validation database too; the repository's file of "
    "that name holds 10,000 training rows.",
    "E1": "BM25's k1 and b, the tokenizer of the chunks and their overlap are not stated; top k is twice the number of "
    "chunks.",
    "E2": "Low scores of the larger models without notes are explained by less memory, but look like empty replies "
    "scored 0.",
    "E3": "RadQA's unanswerable questions were left out, so whether a model abstains when it should was not measured.",
    "E4": "The judge is one of the models under test, and faithfulness is to the gold answer: true details beyond it "
    "count as unfaithful.",
    "E5": "Tables 2, 3 and 4 have rows of Include All over other populations each: all lengths, 8K and longer, 4K and "
    "longer.",
    "E6": "METEOR and BERTScore do not tell right numbers from wrong ones, and NLI misses ranges.",
    "E8": "That larger models consistently perform better does not hold on EHR-DS-QA.",
    "E9": "The best of six arms of retrieval is compared with the one of full context, without n and without a test.",
    "E10": "Qwen2.5-7B-Instruct is in one place its long-context variant (-1M), and the score of Table 13 is unnamed.",
}
