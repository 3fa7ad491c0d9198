-- The operator takes status.blockedRevision off its list and tries that model again.
if obj.status == nil or obj.status.blockedRevision == nil then
  error("no revision is blocked")
end
local what = obj.status.blockedRevision.revision
-- WHEN makes the value a new one. Argo CD tells a script nothing of who pressed the button: its own log and the
-- Application's events do.
local os = require("os")
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["learnloop.dev/retry"] = what .. " at " .. os.date("!%Y-%m-%dT%H:%M:%SZ") .. " by Argo CD"
return obj
