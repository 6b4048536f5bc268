"""What does a slow network cost, and who keeps the speed? Contenders in a lab of shaped links.

`run` (on the host that asks) opens the lab, starts one worker a host, shapes the links when they are warm, and makes
a `Result` of what the workers measured; `worker` is what each host runs.
"""
