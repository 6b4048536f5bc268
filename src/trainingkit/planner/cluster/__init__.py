"""What is there to train on? Devices with what they can really do, links, islands, prices; from a TOML file.

`load_cluster` reads a cluster; `gpu_named` looks into the catalogue.
"""

from trainingkit.planner.cluster.catalogue import gpu_named, gpu_names
from trainingkit.planner.cluster.gpu import Gpu
from trainingkit.planner.cluster.loading import cluster_of, load_cluster
from trainingkit.planner.cluster.spec import Cluster

__all__ = ["Cluster", "Gpu", "cluster_of", "gpu_named", "gpu_names", "load_cluster"]
