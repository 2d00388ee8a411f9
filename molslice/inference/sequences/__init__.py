"""Generation of text with a language model, and rollouts of a policy in its environment."""
