"""What could a worker say, and in how many bits? Forms (`form.Form`) say what one message decodes to; coders
(`bench.frontier.coder.Coder`) make an exchange of them: two-sided, normalised, low rank, with an outer step.
"""

from trainingkit.bench.frontier.coders.adaptive import AdaptiveForm
from trainingkit.bench.frontier.coders.centroids import Centroids
from trainingkit.bench.frontier.coders.fewlevels import FOUR, SIGN, TERNARY, TERNARY_MAX, FewLevels, Levels
from trainingkit.bench.frontier.coders.floats import Bf16, Fp8
from trainingkit.bench.frontier.coders.form import Form, Fp32, Key
from trainingkit.bench.frontier.coders.indices import index_bits
from trainingkit.bench.frontier.coders.integers import Integers
from trainingkit.bench.frontier.coders.lowrank import AcpSGD, PowerSGD
from trainingkit.bench.frontier.coders.normalised import Normalised
from trainingkit.bench.frontier.coders.outer import Outer
from trainingkit.bench.frontier.coders.package import PackageForm
from trainingkit.bench.frontier.coders.rotation import Rotated
from trainingkit.bench.frontier.coders.selections import RandomK, TopK
from trainingkit.bench.frontier.coders.twosided import TwoSided

__all__ = [
    "AcpSGD",
    "AdaptiveForm",
    "Bf16",
    "Centroids",
    "FOUR",
    "FewLevels",
    "Form",
    "Fp32",
    "Fp8",
    "Integers",
    "Key",
    "Levels",
    "Normalised",
    "Outer",
    "PackageForm",
    "PowerSGD",
    "RandomK",
    "Rotated",
    "SIGN",
    "TERNARY",
    "TERNARY_MAX",
    "TopK",
    "TwoSided",
    "index_bits",
]
