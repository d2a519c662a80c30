"""The prompt files of `citing = numbers`: replies name numbers of sentences."""
