-- The canary, or else the promoted model that is still guarded.
local status = obj.status or {}
local arm = status.canary
if arm == nil and status.previous ~= nil then
  arm = status.stable
end
if arm == nil then
  error("no revision is being rolled out or guarded")
end
local what = arm.revision
-- WHEN makes the value a new one. Argo CD tells a script nothing of who pressed the button: its own log and the
-- Application's events do.
local os = require("os")
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["learnloop.dev/abort"] = what .. " at " .. os.date("!%Y-%m-%dT%H:%M:%SZ") .. " by Argo CD"
return obj
