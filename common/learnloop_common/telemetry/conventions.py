"""Names of OpenTelemetry's semantic conventions, pinned: both groups are in development and change between versions.

Sources: semantic conventions 1.38.0, CICD spans and generative AI events. A change of version is a change of this file.
"""

SCHEMA_URL = "https://opentelemetry.io/schemas/1.38.0"

SERVICE_NAME = "service.name"
SERVICE_INSTANCE = "service.instance.id"
NAMESPACE = "k8s.namespace.name"
ERROR_TYPE = "error.type"

PIPELINE_NAME = "cicd.pipeline.name"
PIPELINE_RUN = "cicd.pipeline.run.id"
PIPELINE_RESULT = "cicd.pipeline.result"
TASK_NAME = "cicd.pipeline.task.name"
TASK_RUN = "cicd.pipeline.task.run.id"
TASK_RESULT = "cicd.pipeline.task.run.result"
SUCCESS, FAILURE, ERROR, CANCELLED = "success", "failure", "error", "cancellation"

AGENT = "gen_ai.agent.name"
EVALUATION = "gen_ai.evaluation.result"
EVALUATION_NAME = "gen_ai.evaluation.name"
EVALUATION_LABEL = "gen_ai.evaluation.score.label"
EVALUATION_SCORE = "gen_ai.evaluation.score.value"
EVALUATION_WHY = "gen_ai.evaluation.explanation"
PASS, FAIL = "pass", "fail"

OBJECT = "learnloop.object"
ATTEMPT = "learnloop.training.attempt"
ALGORITHM = "learnloop.training.algorithm"
STEPS = "learnloop.training.steps"
REVISION = "learnloop.model.revision"
WEIGHT = "learnloop.rollout.weight"
LINK = "learnloop.link"
