"""Reason constants of a ModelDeployment: conditions and events use the same words."""

# What holds or moves a rollout.
MODEL_UNRESOLVED = "ModelUnresolved"
GATEWAY_MISSING = "GatewayMissing"
WAITING_FOR_PODS = "WaitingForPods"
PODS_NOT_READY = "PodsNotReady"
NOT_ENOUGH_DATA = "NotEnoughData"
NO_EVIDENCE = "NoEvidence"
WAITING_FOR_TIME = "WaitingForTime"
WAITING_FOR_APPROVAL = "WaitingForApproval"
STEPPING = "Stepping"
GUARDING = "Guarding"
HEALTHY = "Healthy"
SUSPENDED = "Suspended"
BLOCKED = "RevisionBlocked"

# What happened: events, and the reason behind a blocked revision.
FIRST_MODEL = "FirstModelServed"
CANARY_CREATED = "CanaryCreated"
CANARY_READY = "CanaryReady"
WEIGHT_RAISED = "WeightRaised"
WEIGHT_LOWERED = "WeightLowered"
PROMOTED = "Promoted"
ROLLED_BACK = "RolledBack"
SWAPPED_BACK = "SwappedBack"
REVERTED = "Reverted"
SUPERSEDED = "Superseded"
RETRYING = "Retrying"
GUARD_OVER = "GuardOver"

# Why a revision was taken back.
CHECK_FAILED = "CheckFailed"
ABORTED = "Aborted"
PROGRESS_DEADLINE = "ProgressDeadlineExceeded"
MODEL_REFUSED = "ModelRefused"

# Condition types beside Ready, Reconciling and Stalled.
PROGRESSING = "Progressing"
PAUSED = "Paused"
ROLLED_BACK_CONDITION = "RolledBack"
DATA_AVAILABLE = "DataAvailable"
