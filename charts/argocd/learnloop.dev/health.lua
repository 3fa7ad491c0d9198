-- Health of every learnloop.dev kind, from its conditions.
-- A model that was rolled back is Degraded with the operator's own sentence, a human who is waited for is Suspended.
local function health(status, message)
  return { status = status, message = message }
end

if obj.metadata.deletionTimestamp ~= nil then
  return health("Progressing", "Pending deletion")
end
if obj.status == nil or obj.status.conditions == nil then
  return health("Progressing", "waiting for the operator to look at it")
end
if obj.status.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", "waiting for the operator to see the newest spec")
end

local conditions = {}
for _, condition in ipairs(obj.status.conditions) do
  conditions[condition.type] = condition
end
local function is(type)
  return conditions[type] ~= nil and conditions[type].status == "True"
end
-- A LearningAgent repeats in Served what its ModelDeployment says.
local served = conditions.Served
local function served_for(reason)
  return served ~= nil and served.status ~= "True" and served.reason == reason
end

if is("RolledBack") then
  return health("Degraded", conditions.RolledBack.message)
end
if served_for("RolledBack") or served_for("SwappedBack") or served_for("RevisionBlocked") then
  return health("Degraded", served.message)
end
if is("Stalled") then
  return health("Degraded", conditions.Stalled.message)
end
if obj.spec.suspend == true then
  return health("Suspended", "spec.suspend is true")
end
if is("Paused") then
  return health("Suspended", conditions.Paused.message)
end
if served_for("WaitingForApproval") then
  return health("Suspended", served.message)
end
if is("Ready") and not is("Reconciling") then
  return health("Healthy", conditions.Ready.message)
end
if conditions.Ready ~= nil then
  return health("Progressing", conditions.Ready.message)
end
return health("Progressing", "the operator has not said yet whether it is ready")
