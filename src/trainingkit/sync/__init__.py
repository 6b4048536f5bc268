"""When do workers agree, and how? Synchronisers with one protocol; plain DDP is the first."""

from trainingkit.sync.contract import Sync as Sync
from trainingkit.sync.contract import SyncSection as SyncSection
from trainingkit.sync.contract import SyncStats as SyncStats
