-- Holds the canary at its weight; a breach still rolls it back.
if obj.status == nil or obj.status.canary == nil then
  error("there is no canary")
end
local what = obj.status.canary.revision
-- WHEN makes the value a new one. Argo CD tells a script nothing of who pressed the button: its own log and the
-- Application's events do.
local os = require("os")
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["learnloop.dev/pause"] = what .. " at " .. os.date("!%Y-%m-%dT%H:%M:%SZ") .. " by Argo CD"
return obj
