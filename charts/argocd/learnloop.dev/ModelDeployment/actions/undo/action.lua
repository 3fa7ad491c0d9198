-- The promoted model goes: to the warm old arm, else to status.lastStable.
if obj.status == nil or obj.status.stable == nil then
  error("no model serves")
end
local what = obj.status.stable.revision
-- WHEN makes the value a new one. Argo CD tells a script nothing of who pressed the button: its own log and the
-- Application's events do.
local os = require("os")
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["learnloop.dev/undo"] = what .. " at " .. os.date("!%Y-%m-%dT%H:%M:%SZ") .. " by Argo CD"
return obj
