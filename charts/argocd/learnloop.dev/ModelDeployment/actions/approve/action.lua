-- Names revision and step (from 1): an approval given once can never pass a later pause or another model.
if obj.status == nil or obj.status.canary == nil or obj.status.step == nil then
  error("nothing waits for approval")
end
local what = obj.status.canary.revision .. "/" .. (obj.status.step + 1)
-- WHEN makes the value a new one. Argo CD tells a script nothing of who pressed the button: its own log and the
-- Application's events do.
local os = require("os")
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["learnloop.dev/approve"] = what .. " at " .. os.date("!%Y-%m-%dT%H:%M:%SZ") .. " by Argo CD"
return obj
