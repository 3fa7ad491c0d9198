local suspended = obj.spec.suspend == true
local status = obj.status or {}

local waiting = false
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Paused" and condition.status == "True" then
    waiting = status.canary ~= nil and status.step ~= nil
  end
end
-- While the promoted model is guarded the old arm is still warm, so that too can be undone.
local guarding = status.previous ~= nil and status.stable ~= nil

local actions = {}
actions["approve"] = { ["disabled"] = not waiting, ["displayName"] = "Approve this step" }
actions["abort"] = { ["disabled"] = status.canary == nil and not guarding, ["displayName"] = "Roll back" }
actions["retry"] = { ["disabled"] = status.blockedRevision == nil, ["displayName"] = "Try the blocked model again" }
actions["suspend"] = { ["disabled"] = suspended }
actions["resume"] = { ["disabled"] = not suspended }
return actions
