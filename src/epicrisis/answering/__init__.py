"""From a question and what it is handed to an answer: the strategies, their prompts, and how a reply is read."""
