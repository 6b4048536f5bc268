"""What would each rung cost here, and is the forecast true?

`measure` finds out what a step, a codec and the link cost, in the ranks of a job; `run` starts those ranks; `proof`
lays the forecast beside steps that a lab then measures.
"""
