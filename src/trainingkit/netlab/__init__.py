"""What would this network do? Hosts as network namespaces, links shaped by the kernel, nothing left behind.

`with Lab(LabSpec(hosts=4, link="100mbit")) as lab: lab.launch([sys.executable, "train.py"])`. Linux only.
"""

from trainingkit.netlab.job import JobResult, RankEnd
from trainingkit.netlab.lab import Counters, Lab
from trainingkit.netlab.measure import PairRate, RateMatrix, measure_pair, measure_rates
from trainingkit.netlab.process import HostProcess
from trainingkit.netlab.rates import format_rate, parse_rate
from trainingkit.netlab.relay import RelayCounters
from trainingkit.netlab.spec import LabSpec, spec_from_texts

__all__ = [
    "Counters",
    "HostProcess",
    "JobResult",
    "Lab",
    "LabSpec",
    "PairRate",
    "RankEnd",
    "RateMatrix",
    "RelayCounters",
    "format_rate",
    "measure_pair",
    "measure_rates",
    "parse_rate",
    "spec_from_texts",
]
