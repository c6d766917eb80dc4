from .challenge.run import run_challenge as run_challenge
