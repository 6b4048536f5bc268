"""How many minutes of training until a given loss, on a slow network? Loss curves times step seconds.

`curves` trains each contender once on open links and keeps what it sees; `times` measures steps on shaped links, turn
by turn; `compose` puts both together; `run` does all of it in parts that can be done apart.
"""
