local suspended = obj.spec.suspend == true
local status = obj.status or {}
local canary = status.canary
local order = status.standingOrder and status.standingOrder.verb
local held = canary ~= nil and order == "pause"

local waiting = false
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Paused" and condition.status == "True" and not held then
    waiting = canary ~= nil and status.step ~= nil
  end
end
-- While the promoted model is guarded the old arm is still warm, so that too can be aborted.
local guarding = status.previous ~= nil and status.stable ~= nil
local earlier = status.previous ~= nil or status.lastStable ~= nil
-- While a rollout is suspended nothing leads up; what rolls an arm back is obeyed at any time.
local free = canary ~= nil and not suspended

local function action(offered, name)
  return { ["disabled"] = not offered, ["displayName"] = name }
end
local actions = {}
actions["approve"] = action(waiting and not suspended, "Approve this step")
actions["reject"] = action(waiting or held, "Reject this step")
actions["pause"] = action(free and order == nil, "Hold the canary at its weight")
actions["resume"] = action(suspended or held, "Resume")
actions["skip"] = action(free and order == nil and status.step ~= nil, "Skip this step's evidence")
actions["promote"] = action(free and order == nil, "Promote without the remaining evidence")
actions["restart"] = action(free and order ~= "undo", "Start the rollout over")
actions["abort"] = action(canary ~= nil or guarding, "Roll back")
actions["undo"] = action(canary == nil and earlier and not suspended, "Back to the model before")
actions["retry"] = action(status.blockedRevision ~= nil and not suspended, "Try the blocked model again")
actions["suspend"] = action(not suspended, "Suspend")
return actions
