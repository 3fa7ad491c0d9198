local suspended = obj.spec.suspend == true

local actions = {}
actions["suspend"] = { ["disabled"] = suspended }
actions["resume"] = { ["disabled"] = not suspended }
return actions
