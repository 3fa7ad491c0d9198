-- Any new value makes the operator forget status.blockedRevision and try that model again.
local os = require("os")
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["learnloop.dev/retry"] = os.date("!%Y-%m-%dT%H:%M:%SZ")
return obj
