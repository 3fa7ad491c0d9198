-- Refuses exactly this step of this revision: it is rolled back and blocked.
if obj.status == nil or obj.status.canary == nil or obj.status.step == nil then
  error("no canary is at a step")
end
local what = obj.status.canary.revision .. "/" .. (obj.status.step + 1)
-- WHEN makes the value a new one. Argo CD tells a script nothing of who pressed the button: its own log and the
-- Application's events do.
local os = require("os")
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["learnloop.dev/reject"] = what .. " at " .. os.date("!%Y-%m-%dT%H:%M:%SZ") .. " by Argo CD"
return obj
