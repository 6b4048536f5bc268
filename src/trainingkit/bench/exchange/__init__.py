"""Does an exchange cost more with more ranks, and what do islands save? Bytes, RAM and seconds, without a model.

`run` starts the processes and makes the `Result`; `worker` is what each of them runs: real ranks over loopback, many
simulated ranks in one process, or one host of a lab with islands.
"""
