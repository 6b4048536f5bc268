"""When do workers agree, and how? Synchronisers with one protocol; plain DDP is the first."""

from trainingkit.sync.section import SyncSection as SyncSection
