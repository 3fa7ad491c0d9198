local suspended = obj.spec.suspend == true

local actions = {}
actions["train"] = { ["disabled"] = suspended or obj.spec.training == nil, ["displayName"] = "Train now" }
actions["suspend"] = { ["disabled"] = suspended }
actions["resume"] = { ["disabled"] = not suspended }
return actions
